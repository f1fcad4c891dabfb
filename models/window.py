from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import new_id
from models.base import Base


class WindowStatus(StrEnum):
    """Where a window stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


WINDOW_TRANSITIONS: Mapping[WindowStatus, frozenset[WindowStatus]] = MappingProxyType(
    {
        WindowStatus.PENDING: frozenset({WindowStatus.RUNNING, WindowStatus.CANCELLED}),
        WindowStatus.RUNNING: frozenset(
            {
                WindowStatus.DONE,
                WindowStatus.PENDING,  # lease expired, or a failure that may pass
                WindowStatus.FAILED,
                WindowStatus.CANCELLED,
            }
        ),
        WindowStatus.DONE: frozenset(),
        WindowStatus.FAILED: frozenset({WindowStatus.PENDING}),  # the job is retried
        WindowStatus.CANCELLED: frozenset({WindowStatus.PENDING}),  # the job is retried
    }
)


class Window(Base):
    """The audio of one forward pass: the unit of work and of recovery.

    Attributes:
        index: Position in the job, from 0, without gaps; the order of starts within a channel.
        channel: Number of the track under `channels=split`, else None.
        start_sample: Position in the media at 16 kHz (media time, late starts included).
        object_key: Storage object that holds this window's complete FLAC stream.
        attempt: Number of the present or last claim; the fencing token of every later write.
        failures: Claims that ended in an error, or lost their lease after `started_at`. From the
            first failure on a window is recognised alone, so that it cannot hurt neighbours.
        started_at: When the present claim's forward pass began; None while it only waits for it.
        claimed_by: Name of the engine that holds or held the lease, for people who debug.
        is_claimable: False while the job's language must be settled first and cannot be yet.
        adapter, model, priority, key_id: Copies of the job's, so that a claim needs no join.
        hypothesis: `core.transcript.Hypothesis` as JSON once done.
    """

    __tablename__ = "windows"
    __table_args__ = (
        UniqueConstraint("job_id", "index"),
        CheckConstraint(
            "status IN ('pending', 'running', 'done', 'failed', 'cancelled')", name="status"
        ),
        CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL)", name="running_has_lease"
        ),
        CheckConstraint("(status = 'done') = (hypothesis IS NOT NULL)", name="done_has_hypothesis"),
        CheckConstraint("(status = 'failed') = (error_code IS NOT NULL)", name="failed_has_code"),
        CheckConstraint("num_samples > 0 AND num_bytes > 0", name="not_empty"),
        Index(
            "ix_windows_claim",
            "adapter",
            "model",
            "status",
            "is_claimable",
            "priority",
            "key_id",
            "job_id",
            "index",
        ),
        Index("ix_windows_lease", "status", "lease_expires_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    index: Mapped[int]
    channel: Mapped[int | None]
    start_sample: Mapped[int]
    num_samples: Mapped[int]
    object_key: Mapped[str] = mapped_column(Text)
    byte_offset: Mapped[int]
    num_bytes: Mapped[int]

    adapter: Mapped[str] = mapped_column(String(64))
    model: Mapped[str] = mapped_column(String(200))
    priority: Mapped[int]
    key_id: Mapped[UUID]
    is_claimable: Mapped[bool] = mapped_column(default=True)

    status: Mapped[WindowStatus] = mapped_column(String(16), default=WindowStatus.PENDING)
    attempt: Mapped[int] = mapped_column(default=0)
    failures: Mapped[int] = mapped_column(default=0)
    lease_expires_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    claimed_by: Mapped[str | None] = mapped_column(String(200))
    hypothesis: Mapped[dict[str, Any] | None]
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
    finished_at: Mapped[datetime | None]
