"""What the sweeper looks for: work that lost its message or its worker. Bounded queries."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.errors import WorkerLost
from core.events import Publisher
from core.queues import JobQueue
from lifecycle.jobs import lock_job
from lifecycle.windows import fail_window, lease_of, release_windows
from models import Job, JobStage, JobStatus, Window, WindowStatus

FINAL = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStage:
    """A job whose next stage nobody has claimed."""

    job_id: UUID
    stage: JobStage
    priority: int


def list_expired_stages(session: Session, *, limit: int, now: datetime) -> list[UUID]:
    """Return jobs whose claim has expired."""
    return list(
        session.scalars(
            select(Job.id)
            .where(Job.status == JobStatus.RUNNING, Job.lease_expires_at < now)
            .limit(limit)
        )
    )


def list_jobs_with_expired_windows(session: Session, *, limit: int, now: datetime) -> list[UUID]:
    """Return jobs that have windows whose claim has expired."""
    return list(
        session.scalars(
            select(Window.job_id)
            .where(Window.status == WindowStatus.RUNNING, Window.lease_expires_at < now)
            .distinct()
            .limit(limit)
        )
    )


def recover_windows(
    uow: UnitOfWork,
    publisher: Publisher,
    queue: JobQueue,
    job_id: UUID,
    *,
    max_attempts: int,
    now: datetime,
) -> int:
    """Put a job's expired windows back and return how many.

    Those whose forward pass had begun are blamed for it: one of them may have killed the worker.
    The others only waited, and are not.
    """
    if lock_job(uow.session, job_id) is None:
        return 0
    expired = uow.session.scalars(
        select(Window)
        .where(
            Window.job_id == job_id,
            Window.status == WindowStatus.RUNNING,
            Window.lease_expires_at < now,
        )
        .with_for_update(skip_locked=True)
        .execution_options(populate_existing=True)
    ).all()
    release_windows(uow.session, [lease_of(row) for row in expired if row.started_at is None])
    for row in expired:
        if row.started_at is not None:
            fail_window(
                uow,
                publisher,
                queue,
                job_id,
                lease_of(row),
                error=WorkerLost("The worker was lost while it recognised this audio."),
                max_attempts=max_attempts,
                now=now,
            )
    return len(expired)


def list_waiting_stages(session: Session, *, limit: int, now: datetime) -> list[WaitingStage]:
    """Return what could be claimed now, jobs close to their end first, then by priority and age."""
    found: list[WaitingStage] = []
    for status, stage in (
        (JobStatus.RUNNING, JobStage.FINISH),
        (JobStatus.RUNNING, JobStage.PREPARE),
        (JobStatus.QUEUED, JobStage.PREPARE),
    ):
        rows = session.execute(
            select(Job.id, Job.priority)
            .where(
                Job.status == status,
                Job.stage == stage,
                Job.lease_expires_at.is_(None),
                Job.retry_at.is_(None) | (Job.retry_at <= now),
            )
            .order_by(Job.priority, Job.id)
            .limit(limit - len(found))
        )
        found += [WaitingStage(job_id=row.id, stage=stage, priority=row.priority) for row in rows]
    return found


def list_waiting_adapters(session: Session) -> list[str]:
    """Return the adapters for which windows wait."""
    waiting: list[str] = []
    adapter = ""
    while True:
        found = session.scalar(
            select(Window.adapter).where(Window.adapter > adapter).order_by(Window.adapter).limit(1)
        )
        if found is None:
            return waiting
        adapter = found
        if _has_waiting(session, adapter):
            waiting.append(adapter)


def list_expired_jobs(session: Session, *, limit: int, now: datetime) -> list[UUID]:
    """Return jobs that have ended and whose time to be deleted has come."""
    return list(
        session.scalars(
            select(Job.id).where(Job.delete_at <= now, Job.status.in_(FINAL)).limit(limit)
        )
    )


def _has_waiting(session: Session, adapter: str) -> bool:
    model = ""
    while True:
        found = session.scalar(
            select(Window.model)
            .where(Window.adapter == adapter, Window.model > model)
            .order_by(Window.model)
            .limit(1)
        )
        if found is None:
            return False
        model = found
        is_waiting = session.scalar(
            select(Window.id)
            .where(
                Window.adapter == adapter,
                Window.model == model,
                Window.status == WindowStatus.PENDING,
                Window.is_claimable.is_(True),
            )
            .limit(1)
        )
        if is_waiting is not None:
            return True
