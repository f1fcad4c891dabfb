"""Claims of a job's row: `prepare` and `finish` run under a lease, fenced by `jobs.attempt`."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.errors import ScriptoriumError, SourceUnavailable, Transient, WorkerLost
from core.events import EventType, Publisher
from core.queues import JobQueue
from lifecycle.events import record_event
from lifecycle.jobs import fail_job, lock_job, lock_owned_job
from lifecycle.progress import describe_update
from models import Job, JobStage, JobStatus

MAX_BACKOFF = timedelta(minutes=5)
MAX_RETRY_AFTER = timedelta(hours=1)
"""Longest that the server of a `media_url` may ask us to stay away between two tries."""


def backoff(failures: int) -> timedelta:
    """Return how long to wait after the `failures`-th failure in a row: 1 s, 2 s, 4 s … 5 min."""
    return min(MAX_BACKOFF, timedelta(seconds=2 ** min(failures - 1, 16)))


def claim_stage(
    uow: UnitOfWork,
    publisher: Publisher,
    job_id: UUID,
    stage: JobStage,
    *,
    lease: timedelta,
    admit: Callable[[Job], bool] = lambda _job: True,
    now: datetime,
) -> Job | None:
    """Take the job's next stage, or return None if it is taken, over, or not due.

    The row is locked while it is looked at, so of two workers with the same message one wins.

    Args:
        admit: Asked last: whether this worker takes the job, whose `media` is loaded.
    """
    job = lock_job(uow.session, job_id, with_media=True)
    if job is None or job.stage != stage or not _is_free(job, now) or not admit(job):
        return None
    if job.status == JobStatus.QUEUED:
        job.move_to(JobStatus.RUNNING, now=now)
        record_event(uow, publisher, job, EventType.JOB_UPDATED, describe_update(job), now=now)
    job.attempt += 1
    job.lease_expires_at = now + lease
    job.retry_at = None
    return job


def renew_stage(
    session: Session,
    job_id: UUID,
    stage: JobStage,
    *,
    attempt: int,
    lease: timedelta,
    now: datetime,
) -> None:
    """Prolong a claim.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    lock_owned_job(session, job_id, attempt=attempt, stage=stage).lease_expires_at = now + lease


def release_stage(
    uow: UnitOfWork,
    queue: JobQueue,
    job_id: UUID,
    stage: JobStage,
    *,
    attempt: int,
) -> None:
    """Give up a claim without blame, because this process ends; another worker may start at once.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = lock_owned_job(uow.session, job_id, attempt=attempt, stage=stage)
    job.lease_expires_at = None
    notify_stage(uow, queue, job)


def fail_stage(
    uow: UnitOfWork,
    publisher: Publisher,
    job_id: UUID,
    stage: JobStage,
    *,
    attempt: int,
    error: Exception,
    max_attempts: int,
    now: datetime,
) -> None:
    """End an attempt that went wrong: for good, or to be tried again by the sweeper.

    Deliberate errors other than `Transient` cannot pass by trying again. Everything else may.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = lock_owned_job(uow.session, job_id, attempt=attempt, stage=stage)
    _end_attempt(uow, publisher, job, error, max_attempts=max_attempts, now=now)


def expire_stage(
    uow: UnitOfWork,
    publisher: Publisher,
    job_id: UUID,
    *,
    max_attempts: int,
    now: datetime,
) -> bool:
    """Take an expired claim away from whoever died with it; return whether it had expired."""
    job = lock_job(uow.session, job_id)
    if job is None or job.lease_expires_at is None or job.lease_expires_at >= now:
        return False
    error = WorkerLost(f"The worker was lost {job.failures + 1} times in {job.stage}.")
    _end_attempt(uow, publisher, job, error, max_attempts=max_attempts, now=now)
    return True


def _end_attempt(
    uow: UnitOfWork,
    publisher: Publisher,
    job: Job,
    error: Exception,
    *,
    max_attempts: int,
    now: datetime,
) -> None:
    may_pass = not isinstance(error, ScriptoriumError) or isinstance(error, Transient | WorkerLost)
    job.failures += 1
    if not may_pass or job.failures >= max_attempts:
        code, message = describe_error(error)
        fail_job(uow, publisher, job, error_code=code, error_message=message, now=now)
    else:
        job.lease_expires_at = None
        job.retry_at = now + max(backoff(job.failures), _wanted_pause(error))


def _wanted_pause(error: Exception) -> timedelta:
    asked_s = error.retry_after_s if isinstance(error, SourceUnavailable) else None
    return min(timedelta(seconds=asked_s or 0), MAX_RETRY_AFTER)


def describe_error(error: Exception) -> tuple[str, str]:
    """Return code and message for callers; what was not raised on purpose shows only its type."""
    if isinstance(error, ScriptoriumError):
        return error.code, str(error) or error.title
    return ScriptoriumError.code, f"{ScriptoriumError.title} ({type(error).__name__})."


def enter_finish_if_recognised(uow: UnitOfWork, queue: JobQueue, job: Job) -> None:
    """Move a locked job on once all windows are known (it has left `prepare`) and settled."""
    if job.stage == JobStage.RECOGNISE and job.windows_done == job.windows_total:
        job.stage = JobStage.FINISH
        job.failures = 0
        job.retry_at = None
        notify_stage(uow, queue, job)


def notify_stage(uow: UnitOfWork, queue: JobQueue, job: Job) -> None:
    """Tell the media workers, once it is durable, that the job's stage waits for one of them."""
    if job.stage == JobStage.PREPARE:
        uow.after_commit(partial(queue.prepare, job.id, priority=job.priority))
    elif job.stage == JobStage.FINISH:
        uow.after_commit(partial(queue.finish, job.id))


def _is_free(job: Job, now: datetime) -> bool:
    is_open = job.status in (JobStatus.QUEUED, JobStatus.RUNNING)
    is_due = job.retry_at is None or job.retry_at <= now
    return is_open and job.lease_expires_at is None and is_due
