from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base


class Segment(Base):
    """A final phrase of a completed job.

    Attributes:
        index: Position in the transcript, from 0.
        words: `[{text, start_ms, end_ms, probability}]`, or None when no word times were asked for.
        stats: avg_logprob, no_speech_prob, compression_ratio, temperature, tokens, language, and
            token_logprobs if they were asked for.
    """

    __tablename__ = "segments"
    __table_args__ = (CheckConstraint("start_ms >= 0 AND end_ms >= start_ms", name="is_interval"),)

    job_id: Mapped[UUID] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    channel: Mapped[int | None]
    start_ms: Mapped[int]
    end_ms: Mapped[int]
    text: Mapped[str] = mapped_column(Text)
    words: Mapped[list[Any] | None]
    stats: Mapped[dict[str, Any]]
