from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import new_id
from models.base import Base, SealedJson


class Media(Base):
    """An uploaded object at rest.

    Attributes:
        storage_key: Where it lies in storage.
        is_ours: Whether deleting the last job deletes the object; False for a `media_key` that
            the caller put into the bucket.
        filename: As the caller named it; data only, never part of a path.
        sha256: Hex digest of the bytes; None until somebody has read them all.
        source_url: Where the media worker fetches the object from (`media_url`), until it has.
        source_headers: Sent with that fetch; removed after it. Never shown, never logged.
    """

    __tablename__ = "media"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id"), index=True)
    storage_key: Mapped[str] = mapped_column(Text, index=True)
    is_ours: Mapped[bool] = mapped_column(default=True)
    filename: Mapped[str | None] = mapped_column(Text)
    content_type: Mapped[str | None] = mapped_column(Text)
    size_bytes: Mapped[int | None]
    sha256: Mapped[str | None] = mapped_column(String(64), index=True)
    source_url: Mapped[str | None] = mapped_column(Text)
    source_headers: Mapped[dict[str, Any] | None] = mapped_column(SealedJson)
    created_at: Mapped[datetime]
