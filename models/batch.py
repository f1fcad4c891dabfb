from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.errors import InvalidTransition
from core.ids import new_id
from models.base import Base, Sealed, SealedJson


class BatchStatus(StrEnum):
    """Where a batch stands; `completed` also when items failed."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens unless somebody retries."""
        return self in (BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.CANCELLED)


BATCH_TRANSITIONS: Mapping[BatchStatus, frozenset[BatchStatus]] = MappingProxyType(
    {
        BatchStatus.QUEUED: frozenset(
            {BatchStatus.RUNNING, BatchStatus.FAILED, BatchStatus.CANCELLED}
        ),
        BatchStatus.RUNNING: frozenset(
            {BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.CANCELLED}
        ),
        BatchStatus.COMPLETED: frozenset({BatchStatus.RUNNING}),  # failed items are retried
        BatchStatus.FAILED: frozenset(),
        BatchStatus.CANCELLED: frozenset({BatchStatus.RUNNING}),  # likewise
    }
)


class Batch(Base):
    """Many jobs submitted together: a manifest of lines, or a prefix of stored objects.

    Attributes:
        manifest_key: Object with the lines as sent; None for a prefix.
        prefix, glob: Which stored objects are the items, where there is no manifest.
        defaults: Job options, by their names in the HTTP interface, that lines may override. They
            may hold a `webhook_secret`; never shown.
        num_lines: Lines of the manifest that are not blank; None for a prefix until listed.
        position: How far the source was read: a byte offset in the manifest.
        last_key: The same for a prefix: the newest object's key.
        next_index: Index of the next item.
        expanded_at: When the last line had become an item.
        attempt: How often expansion was claimed; the fencing token of its writes.
        round: How often the batch was started: 1, and one more with each retry.
        results_round: Round whose results lie in storage; 0 before the first.
    """

    __tablename__ = "batches"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        CheckConstraint(
            "(status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="final_has_finished_at",
        ),
        CheckConstraint(
            "(status = 'failed') = (error_code IS NOT NULL)", name="failed_has_error_code"
        ),
        CheckConstraint("(manifest_key IS NULL) <> (prefix IS NULL)", name="one_source"),
        Index("ix_batches_key_id_id", "key_id", "id"),
        Index("ix_batches_status", "status"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id"))
    status: Mapped[BatchStatus] = mapped_column(String(16), default=BatchStatus.QUEUED)
    manifest_key: Mapped[str | None] = mapped_column(Text)
    prefix: Mapped[str | None] = mapped_column(Text)
    glob: Mapped[str | None] = mapped_column(Text)
    defaults: Mapped[dict[str, Any]] = mapped_column(SealedJson, default=dict)
    num_lines: Mapped[int | None]
    position: Mapped[int] = mapped_column(default=0)
    last_key: Mapped[str | None] = mapped_column(Text)
    next_index: Mapped[int] = mapped_column(default=0)
    expanded_at: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(default=0)
    lease_expires_at: Mapped[datetime | None]
    round: Mapped[int] = mapped_column(default=1)
    results_round: Mapped[int] = mapped_column(default=0)
    webhook_url: Mapped[str | None] = mapped_column(Text)
    webhook_secret: Mapped[str | None] = mapped_column(Sealed)
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    def move_to(
        self, status: BatchStatus, *, now: datetime, error: tuple[str, str] | None = None
    ) -> None:
        """Change the status and the columns that go with it.

        Args:
            error: Code and message of a batch that fails as a whole.

        Raises:
            InvalidTransition: `BATCH_TRANSITIONS` has no such edge.
        """
        if status not in BATCH_TRANSITIONS[BatchStatus(self.status)]:
            raise InvalidTransition(f"Batch {self.id} is {self.status}; it cannot become {status}.")
        self.status = status
        self.error_code, self.error_message = error or (None, None)
        self.finished_at = now if status.is_final else None
        if status is BatchStatus.RUNNING:
            self.started_at = self.started_at or now


class ItemStatus(StrEnum):
    """Where an item stands. `open` items are told apart by their job's status."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BatchItem(Base):
    """One line of a batch, kept when its job is deleted.

    Attributes:
        index: Position in the manifest, from 0, blank lines not counted.
        custom_id: The caller's name for it; None if the line has none that can be used.
        job_id: None if the line could not become a job, or the job was deleted.
        error_code: Why the line could not become a job; a failed job has its own.
        line: The line itself, where what kept it from becoming a job may pass: `retry` reads it.
    """

    __tablename__ = "batch_items"
    __table_args__ = (
        CheckConstraint("status IN ('open', 'completed', 'failed', 'cancelled')", name="status"),
        Index("ix_batch_items_status", "batch_id", "status"),
        Index("ix_batch_items_custom_id", "batch_id", "custom_id"),
        Index("ix_batch_items_job_id", "job_id"),
    )

    batch_id: Mapped[UUID] = mapped_column(
        ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True
    )
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    custom_id: Mapped[str | None] = mapped_column(String(500))
    job_id: Mapped[UUID | None]
    line: Mapped[dict[str, Any] | None] = mapped_column(SealedJson)
    status: Mapped[ItemStatus] = mapped_column(String(16), default=ItemStatus.OPEN)
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
