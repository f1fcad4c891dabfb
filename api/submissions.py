"""From what a caller sent to a job: options are checked by name, media is probed at the door."""

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError

from api.context import ApiContext
from api.idempotency import create_once
from api.uploads import Upload
from core.audio.media import DecodeLimits
from core.audio.probe import probe
from core.db import unit_of_work
from core.errors import InvalidOption, ScriptoriumError
from lifecycle.idempotency import Once
from lifecycle.intake import MediaMaker, find_media, take_in
from lifecycle.submissions import Source, SourceKind, Submission, read_json
from lifecycle.views import JobView
from models import Media

log = structlog.get_logger(__name__)


def accept_upload(
    context: ApiContext,
    key_id: UUID,
    upload: Upload,
    submission: Submission,
    *,
    now: datetime,
    once: Once | None = None,
) -> JobView:
    """Probe the stored upload and record its job; blocks. Nothing is left behind if it fails.

    Raises:
        MediaError: The file cannot be transcribed.
        AlreadyAnswered, IdempotencyMismatch: See `api.idempotency.create_once`.
    """
    media = Media(
        id=upload.media_id,
        key_id=key_id,
        storage_key=upload.key,
        filename=upload.filename,
        content_type=upload.content_type,
        size_bytes=upload.size_bytes,
        sha256=upload.sha256,
        created_at=now,
    )
    try:
        with context.storage.local_path(upload.key) as path:
            estimated_ms = _probe(context, path)
        view = _record(
            context,
            key_id,
            lambda _uow: media,
            submission,
            now=now,
            once=once,
            estimated_ms=estimated_ms,
        )
    except DBAPIError:
        # Nobody knows whether a failed COMMIT committed. The sweeper removes an object that no
        # row names; a row without its object would be a lost job.
        log.warning("upload.left_to_sweeper", media_id=str(upload.media_id))
        raise
    except BaseException:
        with suppress(ScriptoriumError):
            context.storage.delete(upload.key)
        raise
    context.metrics.uploaded_bytes.inc(upload.size_bytes)
    return view


def accept_source(
    context: ApiContext,
    key_id: UUID,
    source: Source,
    submission: Submission,
    *,
    now: datetime,
    once: Once | None = None,
) -> JobView:
    """Record a job for media that is in storage already, or somewhere on the web; blocks.

    Raises:
        InvalidOption, MediaNotFound, NotFound, UploadIncomplete: See `lifecycle.intake.find_media`.
        MediaError: An object of the caller's bucket cannot be transcribed.
    """
    make_media = find_media(context.intake, key_id, source, now=now)
    estimated_ms = None
    if source.kind is SourceKind.MEDIA_KEY:
        with context.storage.local_path(source.value) as path:
            estimated_ms = _probe(context, path)
    return _record(
        context, key_id, make_media, submission, now=now, once=once, estimated_ms=estimated_ms
    )


def _probe(context: ApiContext, path: Path) -> int | None:
    """Return the length that the header claims, which is good for estimates only."""
    info = probe(path, DecodeLimits.from_settings(context.settings))
    return info.claimed_ms


def _record(
    context: ApiContext,
    key_id: UUID,
    make_media: MediaMaker,
    submission: Submission,
    *,
    now: datetime,
    once: Once | None,
    estimated_ms: int | None,
) -> JobView:
    with unit_of_work(context.sessions) as uow:

        def make() -> tuple[UUID, JobView]:
            job = take_in(
                uow,
                context.intake,
                key_id,
                make_media,
                submission,
                now=now,
                estimated_ms=estimated_ms,
            )
            return job.id, JobView.of(job)

        view = create_once(
            uow, once, make, status=202, location=lambda job_id: f"/v1/jobs/{job_id}"
        )
    log.info("job.accepted", job_id=str(view.id), size_bytes=view.size_bytes)
    return view


def read_json_object(body: bytes) -> dict[str, Any]:
    """Return a request's JSON body.

    Raises:
        InvalidOption: It is not JSON, or not an object.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as exc:
        raise InvalidOption("body: not valid UTF-8", param="body") from exc
    document = read_json(text, param="body")
    if not isinstance(document, dict):
        raise InvalidOption("body: must be a JSON object", param="body")
    return document
