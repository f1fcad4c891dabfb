"""Uploads: their parts arrive in any order and any number of times, and are joined on first use."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from sqlalchemy import select

from core.db import UnitOfWork
from core.errors import (
    Conflict,
    InvalidOption,
    MediaEmpty,
    MediaGone,
    MediaTooLarge,
    NotFound,
    UploadIncomplete,
)
from core.ids import new_id
from core.storage.base import PartInfo, Storage
from lifecycle.jobs import delete_object
from models import Media
from models.upload import Upload

LIFETIME = timedelta(hours=12)
"""How long the parts may take, and a complete upload may wait for its job."""

ONE_PUT_BYTES = 100_000_000
PART_BYTES = 64 << 20
MAX_PARTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedUpload:
    """An upload whose object lies in storage."""

    upload: Upload
    sha256: str | None


def start_upload(
    uow: UnitOfWork,
    storage: Storage,
    *,
    key_id: UUID,
    filename: str,
    content_type: str,
    size_bytes: int,
    max_bytes: int,
    now: datetime,
) -> Upload:
    """Record an upload.

    Raises:
        MediaEmpty, MediaTooLarge: `size_bytes` is not within 1 … `max_bytes`.
        StorageUnavailable: S3 does not answer.
    """
    if size_bytes < 1:
        raise MediaEmpty("An upload has at least one byte.")
    if size_bytes > max_bytes:
        raise MediaTooLarge(f"The file exceeds {max_bytes} bytes.")
    upload = Upload(
        id=new_id(),
        key_id=key_id,
        filename=filename,
        content_type=content_type,
        size_bytes=size_bytes,
        part_bytes=_part_bytes(size_bytes),
        token=secrets.token_urlsafe(32),
        created_at=now,
        expires_at=now + LIFETIME,
    )
    direct = storage.direct()
    if direct is not None and upload.part_bytes is not None:
        upload.direct_token = direct.start(object_key(upload.id), content_type=content_type)
    uow.session.add(upload)
    uow.session.flush()
    return upload


def arrived_parts(storage: Storage, upload: Upload) -> list[PartInfo]:
    """Return the parts that lie in storage with the right size, in order."""
    direct = storage.direct()
    if upload.direct_token is not None and direct is not None:
        parts = direct.parts(object_key(upload.id), upload.direct_token)
    else:
        prefix = parts_prefix(upload.id)
        parts = [
            PartInfo(number=int(info.key.removeprefix(prefix)), size_bytes=info.size_bytes, tag="")
            for info in storage.list(prefix)
        ]
    return [
        part
        for part in parts
        if part.number <= upload.num_parts and part.size_bytes == upload.part_size(part.number)
    ]


def join_upload(storage: Storage, upload: Upload) -> JoinedUpload:
    """Make one object of the parts; harmless when it was done before.

    Blocks for as long as a copy takes where the parts came through this service.

    Raises:
        UploadIncomplete: Parts are missing or have another size than announced.
    """
    size = _object_size(storage, object_key(upload.id))
    if size is not None:
        if size != upload.size_bytes:
            raise UploadIncomplete(f"{upload.size_bytes} bytes were announced, {size} came.")
        return JoinedUpload(upload=upload, sha256=None)
    parts = arrived_parts(storage, upload)
    if len(parts) != upload.num_parts:
        raise UploadIncomplete(f"{len(parts)} of {upload.num_parts} parts have arrived.")
    direct = storage.direct()
    if upload.direct_token is not None and direct is not None:
        direct.complete(object_key(upload.id), upload.direct_token, parts)
        return JoinedUpload(upload=upload, sha256=None)
    digest = hashlib.sha256()
    with storage.writer(object_key(upload.id), content_type=upload.content_type) as writer:
        for part in parts:
            for block in storage.chunks(part_key(upload.id, part.number)):
                digest.update(block)
                writer.write(block)
    return JoinedUpload(upload=upload, sha256=digest.hexdigest())


def media_of(uow: UnitOfWork, storage: Storage, joined: JoinedUpload, *, now: datetime) -> Media:
    """Return the media that the upload is, made by the first job that names it.

    Raises:
        NotFound: The upload has expired meanwhile.
    """
    upload = uow.session.get(Upload, joined.upload.id, with_for_update=True, populate_existing=True)
    if upload is None:
        raise NotFound(f"There is no upload {joined.upload.id}.")
    if upload.media_id is not None:
        media = uow.session.get(Media, upload.media_id)
        if media is not None:
            return media
        raise NotFound(f"The media of upload {upload.id} was deleted.")
    media = Media(
        id=upload.id,
        key_id=upload.key_id,
        storage_key=object_key(upload.id),
        filename=upload.filename,
        content_type=upload.content_type,
        size_bytes=upload.size_bytes,
        sha256=joined.sha256,
        created_at=now,
    )
    uow.session.add(media)
    uow.session.flush()
    upload.media_id = media.id
    for number in range(1, upload.num_parts + 1):
        if upload.direct_token is None:
            uow.after_commit(partial(delete_object, storage, part_key(upload.id, number)))
    return media


def discard_upload(uow: UnitOfWork, storage: Storage, upload: Upload) -> None:
    """Delete an upload that became no media, with everything that arrived of it."""
    uow.session.delete(upload)
    if upload.media_id is not None:
        return
    direct = storage.direct()
    if upload.direct_token is not None and direct is not None:
        direct.abort(object_key(upload.id), upload.direct_token)
    for number in range(1, upload.num_parts + 1):
        if upload.direct_token is None:
            uow.after_commit(partial(delete_object, storage, part_key(upload.id, number)))
    uow.after_commit(partial(delete_object, storage, object_key(upload.id)))


def expire_uploads(uow: UnitOfWork, storage: Storage, *, now: datetime, limit: int = 100) -> int:
    """Discard uploads whose time is over; the media of used ones is their jobs' now."""
    expired = uow.session.scalars(
        select(Upload).where(Upload.expires_at < now).limit(limit).with_for_update(skip_locked=True)
    ).all()
    for upload in expired:
        discard_upload(uow, storage, upload)
    return len(expired)


def check_part(upload: Upload, number: int, token: str, *, now: datetime) -> None:
    """Check that `token` may write part `number`.

    Raises:
        NotFound: The token is another's, the time is over, or there is no such part.
        Conflict: The upload is media already.
    """
    is_known = secrets.compare_digest(upload.token.encode(), token.encode())
    if not is_known or upload.expires_at <= now or not 1 <= number <= upload.num_parts:
        raise NotFound("There is no such part of an upload.")
    if upload.media_id is not None:
        raise Conflict("The upload is complete and in use.")


def check_filename(filename: str) -> str:
    """Return the name if it can be stored and shown.

    Raises:
        InvalidOption: It is empty, too long, or has control characters.
    """
    if not filename.strip() or len(filename) > 1000 or not filename.isprintable():
        raise InvalidOption("filename: 1 to 1000 printable characters", param="filename")
    return filename


def object_key(upload_id: UUID) -> str:
    """Return where the joined object lies, as an upload and then as media."""
    return f"uploads/{upload_id}/media"


def parts_prefix(upload_id: UUID) -> str:
    """Return where parts lie that came through this service."""
    return f"uploads/{upload_id}/parts/"


def part_key(upload_id: UUID, number: int) -> str:
    """Return where one such part lies; the digits keep a listing in order."""
    return f"{parts_prefix(upload_id)}{number:05}"


def _part_bytes(size_bytes: int) -> int | None:
    if size_bytes <= ONE_PUT_BYTES:
        return None
    return max(PART_BYTES, -(-size_bytes // MAX_PARTS))


def _object_size(storage: Storage, key: str) -> int | None:
    try:
        return storage.stat(key).size_bytes
    except MediaGone:
        return None
