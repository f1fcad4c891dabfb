from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import new_id
from models.base import Base


class Upload(Base):
    """Bytes on their way into storage before any job names them.

    Once a job does, the joined object becomes its media; until then it expires.

    Attributes:
        part_bytes: Size of every part but the last; None for one PUT of everything.
        token: What the URLs carry that this service takes itself; it opens this upload alone.
        direct_token: S3's name of a multipart upload; None for one PUT, or without S3.
        media_id: The media that it became.
    """

    __tablename__ = "uploads"
    __table_args__ = (
        CheckConstraint("size_bytes > 0", name="not_empty"),
        CheckConstraint("part_bytes IS NULL OR part_bytes > 0", name="parts_not_empty"),
        Index("ix_uploads_expires_at", "expires_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id"), index=True)
    filename: Mapped[str] = mapped_column(Text)
    content_type: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int]
    part_bytes: Mapped[int | None]
    token: Mapped[str] = mapped_column(String(64))
    direct_token: Mapped[str | None] = mapped_column(Text)
    media_id: Mapped[UUID | None]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]

    @property
    def num_parts(self) -> int:
        """How many parts there are; 1 for a single PUT."""
        return 1 if self.part_bytes is None else -(-self.size_bytes // self.part_bytes)

    def part_size(self, number: int) -> int:
        """Return how many bytes part `number`, from 1, has."""
        if self.part_bytes is None:
            return self.size_bytes
        return min(self.part_bytes, self.size_bytes - (number - 1) * self.part_bytes)
