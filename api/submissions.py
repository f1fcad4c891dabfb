"""From what a caller sent to a job: options are checked by name, media is probed at the door."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError

from api.context import ApiContext
from api.idempotency import create_once
from api.uploads import Upload
from core.audio.media import DecodeLimits
from core.audio.probe import probe
from core.checkpoints import get_model
from core.db import UnitOfWork, unit_of_work
from core.errors import (
    InvalidOption,
    MediaGone,
    MediaNotFound,
    ScriptoriumError,
)
from core.options import Priority, TranscribeOptions
from core.outbound import check_url
from core.settings import Settings
from core.signing import check_secret
from core.storage.keys import check_key
from lifecycle.idempotency import Once
from lifecycle.jobs import submit_job
from lifecycle.views import JobView
from models import Job, Media

log = structlog.get_logger(__name__)

MAX_METADATA_BYTES = 16_384
MAX_REFERENCE_CHARS = 500
MAX_DELETE_AFTER_S = 10 * 365 * 24 * 3600

JOB_FIELDS = frozenset(
    {
        "model", "priority", "reference", "metadata", "delete_after_s", "webhook_url",
        "webhook_secret", "reuse",
    }
)  # fmt: skip
OPTION_FIELDS = frozenset(TranscribeOptions.model_fields)
SOURCE_FIELDS = frozenset({"media_url", "upload_id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Everything about a job but its media, checked."""

    model: str
    options: TranscribeOptions
    priority: Priority = Priority.STANDARD
    reference: str | None = None
    metadata: dict[str, Any] | None = None
    delete_after: timedelta | None = None
    webhook_url: str | None = None
    webhook_secret: str | None = field(default=None, repr=False)


def parse_fields(fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return form fields by name; `metadata` is read as JSON, empty values mean unset.

    Raises:
        InvalidOption: A field came twice, or `metadata` is no JSON.
    """
    raw: dict[str, Any] = {}
    for name, value in fields:
        if name in raw:
            raise InvalidOption(f"{name}: given more than once", param=name)
        raw[name] = value if value != "" else None
    if raw.get("metadata") is not None:
        raw["metadata"] = _read_json(raw["metadata"], param="metadata")
    return raw


def parse_submission(settings: Settings, raw: Mapping[str, Any]) -> Submission:
    """Return the job that `raw` (names as in the HTTP interface, None for unset) asks for.

    Raises:
        InvalidOption: Something is unknown, of the wrong type, or out of range; `param` names it.
    """
    for name in raw:
        if name not in JOB_FIELDS | OPTION_FIELDS:
            raise InvalidOption(f"{name[:64]}: there is no such option", param=name[:64])
    for name, value in raw.items():
        check_text(value, param=name)
    webhook_url = _read_string(raw, "webhook_url")
    if webhook_url is not None:
        allow_private = settings.webhook_allow_private
        check_url(webhook_url, allow_private=allow_private, param="webhook_url")
    webhook_secret = _read_string(raw, "webhook_secret")
    if webhook_secret is not None:
        check_secret(webhook_secret, param="webhook_secret")
    _read_bool(raw, "reuse")
    return Submission(
        model=get_model(settings, _read_string(raw, "model")).name,
        options=TranscribeOptions.parse({k: v for k, v in raw.items() if k in OPTION_FIELDS}),
        priority=_read_priority(raw),
        reference=_read_string(raw, "reference", max_chars=MAX_REFERENCE_CHARS),
        metadata=_read_metadata(raw),
        delete_after=_read_delete_after(raw),
        webhook_url=webhook_url,
        webhook_secret=webhook_secret,
    )


def check_text(value: object, *, param: str) -> None:
    """Refuse what a text or JSON column cannot hold: NUL and halves of surrogate pairs.

    Raises:
        InvalidOption: `value`, or something in it, is such a text.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if "\0" in item or any("\ud800" <= char <= "\udfff" for char in item):
                raise InvalidOption(f"{param}: contains a character that is not text", param=param)
        elif isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item


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
            probe(path, DecodeLimits.from_settings(context.settings))
        view = _record(context, key_id, media, submission, now=now, once=once)
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


def accept_key(
    context: ApiContext,
    key_id: UUID,
    media_key: object,
    submission: Submission,
    *,
    now: datetime,
    once: Once | None = None,
) -> JobView:
    """Record a job for an object that the caller has put into the service's storage; blocks.

    Raises:
        InvalidOption: The key is malformed or outside `Settings.media_key_prefix`.
        MediaNotFound: There is no such object.
        MediaError: The object cannot be transcribed.
    """
    prefix = context.settings.media_key_prefix
    if not isinstance(media_key, str) or not media_key.startswith(prefix):
        raise InvalidOption(f"media_key: must begin with {prefix!r}", param="media_key")
    check_text(media_key, param="media_key")
    try:
        check_key(media_key)
    except ScriptoriumError as exc:
        raise InvalidOption(f"media_key: {exc}", param="media_key") from exc
    try:
        info = context.storage.stat(media_key)
        with context.storage.local_path(media_key) as path:
            probe(path, DecodeLimits.from_settings(context.settings))
    except MediaGone as exc:
        raise MediaNotFound(f"There is no object {media_key!r}.") from exc
    media = Media(
        key_id=key_id,
        storage_key=media_key,
        is_ours=False,
        filename=media_key.rsplit("/", 1)[-1],
        size_bytes=info.size_bytes,
        created_at=now,
    )
    return _record(context, key_id, media, submission, now=now, once=once)


def _record(
    context: ApiContext,
    key_id: UUID,
    media: Media,
    submission: Submission,
    *,
    now: datetime,
    once: Once | None,
) -> JobView:
    with unit_of_work(context.sessions) as uow:

        def make() -> tuple[UUID, JobView]:
            view = _submit(uow, context, key_id, media, submission, now=now)
            return view.id, view

        view = create_once(
            uow, once, make, status=202, location=lambda job_id: f"/v1/jobs/{job_id}"
        )
    log.info("job.accepted", job_id=str(view.id), size_bytes=media.size_bytes)
    return view


def _submit(
    uow: UnitOfWork,
    context: ApiContext,
    key_id: UUID,
    media: Media,
    submission: Submission,
    *,
    now: datetime,
) -> JobView:
    job: Job = submit_job(
        uow,
        context.queue,
        context.publisher,
        key_id=key_id,
        media=media,
        model=submission.model,
        options=submission.options,
        priority=submission.priority,
        reference=submission.reference,
        metadata=submission.metadata,
        delete_at=None if submission.delete_after is None else now + submission.delete_after,
        now=now,
    )
    job.webhook_url = submission.webhook_url
    job.webhook_secret = submission.webhook_secret
    uow.session.flush()
    return JobView.of(job)


def read_json_object(body: bytes) -> dict[str, Any]:
    """Return a request's JSON body.

    Raises:
        InvalidOption: It is not JSON, or not an object.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as exc:
        raise InvalidOption("body: not valid UTF-8", param="body") from exc
    document = _read_json(text, param="body")
    if not isinstance(document, dict):
        raise InvalidOption("body: must be a JSON object", param="body")
    return document


def take_media_key(raw: dict[str, Any]) -> object:
    """Remove the one source of media from a JSON body and return it.

    Raises:
        InvalidOption: There is none, or one that this service does not take.
    """
    media_key = raw.pop("media_key", None)
    for name in SOURCE_FIELDS & raw.keys():
        raise InvalidOption(f"{name}: not supported; send a file or a media_key", param=name)
    if media_key is None:
        raise InvalidOption("media_key: name an object in storage", param="media_key")
    return media_key


def _read_json(text: str, *, param: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidOption(f"{param}: not valid JSON", param=param) from exc


def _read_metadata(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    metadata = raw.get("metadata")
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise InvalidOption("metadata: must be a JSON object", param="metadata")
    try:
        size = len(json.dumps(metadata, allow_nan=False))
    except (ValueError, RecursionError) as exc:
        raise InvalidOption(f"metadata: {exc}", param="metadata") from exc
    if size > MAX_METADATA_BYTES:
        raise InvalidOption(f"metadata: exceeds {MAX_METADATA_BYTES} bytes", param="metadata")
    return metadata


def _read_priority(raw: Mapping[str, Any]) -> Priority:
    name = _read_string(raw, "priority")
    known = {priority.name.lower(): priority for priority in Priority}
    if name is not None and name not in known:
        raise InvalidOption(f"priority: one of {', '.join(known)}", param="priority")
    return known[name] if name is not None else Priority.STANDARD


def _read_delete_after(raw: Mapping[str, Any]) -> timedelta | None:
    value = raw.get("delete_after_s")
    if value is None:
        return None
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 12
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    seconds = int(value) if is_text or is_whole else 0
    if not 1 <= seconds <= MAX_DELETE_AFTER_S:
        raise InvalidOption(
            f"delete_after_s: whole seconds, 1 to {MAX_DELETE_AFTER_S}", param="delete_after_s"
        )
    return timedelta(seconds=seconds)


def _read_bool(raw: Mapping[str, Any], name: str) -> bool | None:
    value = raw.get(name)
    known = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
    if value is None:
        return None
    if not isinstance(value, (bool, str)) or value not in known:
        raise InvalidOption(f"{name}: true or false", param=name)
    return known[value]


def _read_string(raw: Mapping[str, Any], name: str, *, max_chars: int = 2048) -> str | None:
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > max_chars:
        raise InvalidOption(f"{name}: text of at most {max_chars} characters", param=name)
    return value
