"""A job as callers see it: what `GET /v1/jobs/{id}` answers and what webhooks carry."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from core.options import Priority
from lifecycle.progress import describe_progress
from models import Job, JobStatus


class ErrorView(BaseModel):
    """Why a job failed."""

    code: str
    message: str


class ProgressView(BaseModel):
    """How far a job is; the totals grow until the media is cut completely."""

    windows_done: int
    windows_total: int
    audio_s_done: float
    audio_s_total: float
    percent: float = Field(description="0 to 100; 100 only when completed.")


class JobView(BaseModel):
    """One job."""

    model_config = ConfigDict(extra="forbid")

    id: UUID
    status: JobStatus
    model: str
    revision: str | None = Field(description="Revision of the checkpoint, once settled.")
    options: dict[str, Any]
    priority: str
    reference: str | None
    metadata: dict[str, Any] | None
    batch_id: UUID | None
    reused_from: UUID | None = Field(description="The job whose transcript was reused.")
    filename: str | None
    size_bytes: int | None
    progress: ProgressView
    duration_s: float | None
    language: str | None
    coverage: dict[str, Any] | None
    warnings: list[Any]
    error: ErrorView | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    delete_at: datetime | None

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return the view of a job whose media is loaded."""
        error = (
            ErrorView(code=job.error_code, message=job.error_message or "")
            if job.error_code is not None
            else None
        )
        return cls(
            id=job.id,
            status=JobStatus(job.status),
            model=job.model,
            revision=job.revision,
            options=job.options,
            priority=Priority(job.priority).name.lower(),
            reference=job.reference,
            metadata=job.job_metadata,
            batch_id=job.batch_id,
            reused_from=job.reused_from,
            filename=job.media.filename,
            size_bytes=job.media.size_bytes,
            progress=ProgressView.model_validate(describe_progress(job)),
            duration_s=None if job.duration_ms is None else job.duration_ms / 1000,
            language=job.language,
            coverage=job.coverage,
            warnings=job.warnings,
            error=error,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            delete_at=job.delete_at,
        )
