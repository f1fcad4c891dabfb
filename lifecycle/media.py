"""Media at rest: where it lies, and what is found out once somebody has read it."""

from typing import Any
from uuid import UUID

from sqlalchemy import update
from sqlalchemy.orm import Session

from models import Media

_MEDIA = Media.metadata.tables[Media.__tablename__]


def media_key(media_id: UUID) -> str:
    """Return where media lies in storage that was sent with a job, or fetched for one."""
    return f"media/{media_id}"


def describe_media(
    session: Session, media_id: UUID, *, size_bytes: int | None = None, sha256: str | None = None
) -> None:
    """Record what was not known before; None for what was."""
    found: dict[str, Any] = {"size_bytes": size_bytes, "sha256": sha256}
    news = {name: value for name, value in found.items() if value is not None}
    if news:  # on the table: a session that sees no ORM in it need not write its rows first
        session.execute(update(_MEDIA).where(_MEDIA.c.id == media_id).values(news))
