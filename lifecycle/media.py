"""Media at rest: where it lies, and what is found out once somebody has read it."""

from uuid import UUID

from sqlalchemy import bindparam, func, update
from sqlalchemy.orm import Session

from models import Media

# Built once, and on the table: putting an ORM's UPDATE together costs more than running it.
_MEDIA = Media.metadata.tables[Media.__tablename__]
_DESCRIBE = (
    update(_MEDIA)
    .where(_MEDIA.c.id == bindparam("media_id"))
    .values(
        size_bytes=func.coalesce(
            bindparam("size", type_=_MEDIA.c.size_bytes.type), _MEDIA.c.size_bytes
        ),
        sha256=func.coalesce(bindparam("hash", type_=_MEDIA.c.sha256.type), _MEDIA.c.sha256),
    )
)


def media_key(media_id: UUID) -> str:
    """Return where media lies in storage that was sent with a job, or fetched for one."""
    return f"media/{media_id}"


def describe_media(
    session: Session, media_id: UUID, *, size_bytes: int | None = None, sha256: str | None = None
) -> None:
    """Record what was not known before; None for what was."""
    if size_bytes is not None or sha256 is not None:
        session.execute(_DESCRIBE, {"media_id": media_id, "size": size_bytes, "hash": sha256})
