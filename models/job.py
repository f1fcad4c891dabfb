from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from core.errors import InvalidTransition
from core.ids import new_id
from models.base import Base, Sealed
from models.media import Media


class JobStatus(StrEnum):
    """Where a job stands, as callers see it; see `TRANSITIONS` for how it moves."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the job ended (it may be retried unless completed)."""
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class JobStage(StrEnum):
    """What the workers do next for a job that has not ended.

    `prepare` and `finish` are claimed with a lease on the job row. During `recognise` the leases
    are on the windows; recognition may start while `prepare` still runs.
    """

    PREPARE = "prepare"
    RECOGNISE = "recognise"
    FINISH = "finish"


TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = MappingProxyType(
    {
        JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.FAILED, JobStatus.CANCELLED}),
        JobStatus.RUNNING: frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}),
        JobStatus.COMPLETED: frozenset(),
        JobStatus.FAILED: frozenset({JobStatus.QUEUED}),  # retry
        JobStatus.CANCELLED: frozenset({JobStatus.QUEUED}),  # retry
    }
)


class Job(Base):
    """One media, one checkpoint, one set of options. The row is the truth; messages are nudges.

    Attributes:
        stage: What comes next; meaningful until the status is final.
        attempt: How often `prepare` or `finish` was claimed; the fencing token of their writes.
        failures: Attempts that ended badly in the present stage; reset when the stage changes.
        lease_expires_at: Until when the present claim of the row is valid; None if unclaimed.
        retry_at: Earliest time of the next claim, after an attempt that ended badly.
        model: Name of the served model. `adapter` and `revision` are settled by `prepare`.
        options: `core.options.TranscribeOptions` as JSON.
        priority: `core.options.Priority`; lower goes first.
        language: Settled language; None until known (or nobody speaks, or `multi`).
        voters: Byte offset and length of each excerpt that votes on the language, in the object
            `lifecycle.jobs.voters_key`; None if windows vote.
        prepared_at: When all windows were known; until then `windows_total` grows.
        duration_ms: Length of the media from decoded samples; None until prepared.
        estimated_ms: Length as the file's header claims it; for limits and estimates only.
        coverage: What was heard, skipped and lost: see `workers.finish`.
        streamed_until_ms: Segments that start before this were sent as events; the cursor that
            makes each of them an event exactly once.
        told_head: Text after that which was published as deltas already; see `lifecycle.deltas`.
        last_seq: Number of the newest event; events are 1 … last_seq without a gap.
        delete_at: When the sweeper removes the job and all it left.
        transcript_key: Storage key of the transcript object.
        batch_id: The batch that made the job. No foreign key: jobs and batches go separately.
        may_reuse: Whether a finished transcript may be copied.
        reused_from: The finished job whose transcript this one copied instead of working.
        webhook_url: Told of the job's end beside the key's endpoints.
        webhook_secret: `whsec_…` for `webhook_url`; None means the key's own. Never shown.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        CheckConstraint("stage IN ('prepare', 'recognise', 'finish')", name="stage"),
        CheckConstraint(
            "(status = 'failed') = (error_code IS NOT NULL)", name="failed_has_error_code"
        ),
        CheckConstraint(
            "(status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="final_has_finished_at",
        ),
        CheckConstraint(
            "status = 'running' OR lease_expires_at IS NULL", name="lease_only_while_running"
        ),
        CheckConstraint(
            "status <> 'completed' OR transcript_key IS NOT NULL", name="completed_has_transcript"
        ),
        CheckConstraint("windows_done <= windows_total", name="windows_done_le_total"),
        Index("ix_jobs_key_id_created_at_id", "key_id", "created_at", "id"),
        Index("ix_jobs_status_stage_priority_id", "status", "stage", "priority", "id"),
        Index("ix_jobs_key_id_reference", "key_id", "reference"),
        Index("ix_jobs_delete_at", "delete_at"),
        Index("ix_jobs_batch_id_status", "batch_id", "status"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id"))
    media_id: Mapped[UUID] = mapped_column(ForeignKey("media.id"), index=True)
    status: Mapped[JobStatus] = mapped_column(String(16), default=JobStatus.QUEUED)
    stage: Mapped[JobStage] = mapped_column(String(16), default=JobStage.PREPARE)
    attempt: Mapped[int] = mapped_column(default=0)
    failures: Mapped[int] = mapped_column(default=0)
    lease_expires_at: Mapped[datetime | None]
    retry_at: Mapped[datetime | None]

    model: Mapped[str] = mapped_column(String(200))
    adapter: Mapped[str | None] = mapped_column(String(64))
    revision: Mapped[str | None] = mapped_column(String(64))
    options: Mapped[dict[str, Any]]
    priority: Mapped[int]
    reference: Mapped[str | None] = mapped_column(String(500))
    job_metadata: Mapped[dict[str, Any] | None] = mapped_column("metadata")

    language: Mapped[str | None] = mapped_column(String(8))
    duration_ms: Mapped[int | None]
    estimated_ms: Mapped[int | None]
    windows_done: Mapped[int] = mapped_column(default=0)
    windows_total: Mapped[int] = mapped_column(default=0)
    audio_ms_done: Mapped[int] = mapped_column(default=0)
    audio_ms_total: Mapped[int] = mapped_column(default=0)
    voters: Mapped[list[Any] | None]
    prepared_at: Mapped[datetime | None]
    coverage: Mapped[dict[str, Any] | None]
    warnings: Mapped[list[Any]] = mapped_column(default=list)
    transcript_key: Mapped[str | None] = mapped_column(Text)
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)

    streamed_until_ms: Mapped[int] = mapped_column(default=0)
    told_head: Mapped[str] = mapped_column(Text, default="", server_default="")
    last_seq: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    delete_at: Mapped[datetime | None]

    batch_id: Mapped[UUID | None]
    may_reuse: Mapped[bool] = mapped_column(default=True)
    reused_from: Mapped[UUID | None]
    webhook_url: Mapped[str | None] = mapped_column(Text)
    webhook_secret: Mapped[str | None] = mapped_column(Sealed)

    media: Mapped[Media] = relationship(lazy="raise")

    def move_to(
        self,
        status: JobStatus,
        *,
        now: datetime,
        error_code: str | None = None,
        error_message: str | None = None,
    ) -> None:
        """Change the status and the columns that go with it.

        Raises:
            InvalidTransition: `TRANSITIONS` has no such edge.
        """
        if status not in TRANSITIONS[JobStatus(self.status)]:
            raise InvalidTransition(f"Job {self.id} is {self.status}; it cannot become {status}.")
        self.status = status
        self.error_code = error_code
        self.error_message = error_message
        self.finished_at = now if status.is_final else None
        if status is JobStatus.RUNNING:
            self.started_at = self.started_at or now
        else:
            self.lease_expires_at = None
