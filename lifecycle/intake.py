"""From a checked request to a job: the way of single jobs and of a batch's items alike."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit
from uuid import UUID

from sqlalchemy.orm import Session, sessionmaker

from core.db import UnitOfWork, read_session
from core.errors import InvalidOption, MediaGone, MediaNotFound, MediaTooLarge, ScriptoriumError
from core.events import Publisher
from core.ids import new_id
from core.queues import JobQueue
from core.settings import Settings
from core.storage.base import Storage
from core.storage.keys import check_key
from lifecycle.limits import check_submission, limits_of
from lifecycle.media import media_key
from lifecycle.owned import get_owned
from lifecycle.submissions import Source, SourceKind, Submission
from lifecycle.submitting import add_job, announce_job
from lifecycle.uploads import join_upload, media_of
from models import Job, Media
from models.upload import Upload

MediaMaker = Callable[[UnitOfWork], Media]
"""Returns the media of a job within the transaction that adds the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """The services that taking jobs in needs."""

    settings: Settings
    sessions: sessionmaker[Session]
    storage: Storage
    queue: JobQueue
    publisher: Publisher


def find_media(intake: Intake, key_id: UUID, source: Source, *, now: datetime) -> MediaMaker:
    """Look for what `source` names; blocks on storage, so call it outside a transaction.

    Raises:
        InvalidOption: A `media_key` is malformed or outside `Settings.media_key_prefix`.
        MediaNotFound: There is no such object.
        NotFound: There is no such upload of this key.
        UploadIncomplete: Not all of the upload has arrived.
    """
    if source.kind is SourceKind.MEDIA_KEY:
        return _stored(intake, key_id, source.value, now=now)
    if source.kind is SourceKind.UPLOAD_ID:
        return _uploaded(intake, key_id, source.value, now=now)
    return _remote(key_id, source, now=now)


def take_in(
    uow: UnitOfWork,
    intake: Intake,
    key_id: UUID,
    make_media: MediaMaker,
    submission: Submission,
    *,
    now: datetime,
    estimated_ms: int | None = None,
) -> Job:
    """Record a job within the key's limits and, once it is durable, tell the media workers.

    Raises: See `add_within_limits`.
    """
    job = add_within_limits(
        uow,
        intake,
        key_id,
        make_media,
        submission,
        now=now,
        estimated_ms=estimated_ms,
    )
    uow.session.flush()
    announce_job(uow, intake.queue, intake.publisher, job, now=now)
    return job


def add_within_limits(
    uow: UnitOfWork,
    intake: Intake,
    key_id: UUID,
    make_media: MediaMaker,
    submission: Submission,
    *,
    now: datetime,
    batch_id: UUID | None = None,
    estimated_ms: int | None = None,
) -> Job:
    """Add a job to the session; see `lifecycle.submitting.add_job`.

    Raises:
        LimitExceeded: The key has too much unfinished work.
        MediaTooLarge: The file is larger than the key may send.
    """
    limits = limits_of(uow.session, intake.settings, key_id)
    check_submission(uow.session, limits, key_id)
    media = make_media(uow)
    if media.size_bytes is not None and media.size_bytes > limits.upload_bytes:
        raise MediaTooLarge(f"The file exceeds {limits.upload_bytes} bytes.")
    return add_job(
        uow.session,
        key_id=key_id,
        media=media,
        model=submission.model,
        options=submission.options,
        priority=limits.clamp(submission.priority),
        reference=submission.reference,
        metadata=submission.metadata,
        delete_at=_delete_at(intake.settings, submission, now),
        webhook_url=submission.webhook_url,
        webhook_secret=submission.webhook_secret,
        may_reuse=submission.reuse,
        batch_id=batch_id,
        estimated_ms=estimated_ms,
        now=now,
    )


def _delete_at(settings: Settings, submission: Submission, now: datetime) -> datetime | None:
    if submission.delete_after is not None:
        return now + submission.delete_after
    if settings.delete_after_s:
        return now + timedelta(seconds=settings.delete_after_s)
    return None


def _stored(intake: Intake, key_id: UUID, key: str, *, now: datetime) -> MediaMaker:
    prefix = intake.settings.media_key_prefix
    if not key.startswith(prefix):
        raise InvalidOption(f"media_key: must begin with {prefix!r}", param="media_key")
    try:
        check_key(key)
    except ScriptoriumError as exc:
        raise InvalidOption(f"media_key: {exc}", param="media_key") from exc
    try:
        info = intake.storage.stat(key)
    except MediaGone as exc:
        raise MediaNotFound(f"There is no object {key!r}.") from exc
    media = Media(
        key_id=key_id,
        storage_key=key,
        is_ours=False,
        filename=key.rsplit("/", 1)[-1],
        size_bytes=info.size_bytes,
        created_at=now,
    )
    return lambda _uow: media


def _uploaded(intake: Intake, key_id: UUID, text: str, *, now: datetime) -> MediaMaker:
    try:
        upload_id = UUID(text)
    except ValueError as exc:
        raise InvalidOption("upload_id: not the id of an upload", param="upload_id") from exc
    with read_session(intake.sessions) as session:
        upload = get_owned(session, Upload, upload_id, key_id=key_id)
        max_bytes = limits_of(session, intake.settings, key_id).upload_bytes
    if upload.size_bytes > max_bytes:
        raise MediaTooLarge(f"The file exceeds {max_bytes} bytes.")
    joined = join_upload(intake.storage, upload)
    return lambda uow: media_of(uow, intake.storage, joined, now=now)


def _remote(key_id: UUID, source: Source, *, now: datetime) -> MediaMaker:
    media_id = new_id()
    name = PurePosixPath(unquote(urlsplit(source.value).path)).name
    media = Media(
        id=media_id,
        key_id=key_id,
        storage_key=media_key(media_id),
        filename=name[:1000] if name.isprintable() and name else None,
        source_url=source.value,
        source_headers=source.headers or None,
        created_at=now,
    )
    return lambda _uow: media
