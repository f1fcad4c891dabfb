"""Reading, ending, retrying and deleting jobs.

Locks are taken in one order everywhere: the job's row, then its windows, and one job a
transaction. Claims take windows alone and skip locked ones. So no two transactions wait for each
other.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.orm import Session, joinedload

from core.db import UnitOfWork
from core.errors import JobNotFound, LeaseLost, Transient
from core.events import EventType, Publisher
from core.queues import JobQueue
from core.storage.base import Storage
from core.transcript import SAMPLE_RATE_HZ
from lifecycle.batches import forget_item
from lifecycle.deliveries import forget_deliveries
from lifecycle.events import record_event
from lifecycle.idempotency import forget_answers
from lifecycle.progress import describe_update
from models import Job, JobStage, JobStatus, Media, Window, WindowStatus

log = structlog.get_logger(__name__)

UNFINISHED = (WindowStatus.PENDING, WindowStatus.RUNNING)

# Built once: putting a statement together costs more than running it.
_LOCK = (
    select(Job)
    .where(Job.id == bindparam("job_id"))
    .with_for_update(of=Job, key_share=True)
    .execution_options(populate_existing=True)
)
_LOCK_WITH_MEDIA = _LOCK.options(joinedload(Job.media, innerjoin=True))


def get_job(session: Session, key_id: UUID | None, job_id: UUID) -> Job:
    """Return a job with its media.

    Args:
        key_id: Who asks; None for an administrator, who may see all.

    Raises:
        JobNotFound: There is none, or it belongs to another key (callers cannot tell which).
    """
    statement = select(Job).where(Job.id == job_id).options(joinedload(Job.media))
    if key_id is not None:
        statement = statement.where(Job.key_id == key_id)
    job = session.scalars(statement).one_or_none()
    if job is None:
        raise JobNotFound(f"There is no job {job_id}.")
    return job


def lock_job(session: Session, job_id: UUID, *, with_media: bool = False) -> Job | None:
    """Lock the job's row until the transaction ends and return it as it is now, if it exists."""
    statement = _LOCK_WITH_MEDIA if with_media else _LOCK
    return session.scalars(statement, {"job_id": job_id}).one_or_none()


def lock_owned_job(session: Session, job_id: UUID, *, attempt: int, stage: JobStage) -> Job:
    """Lock the row for a worker that claimed `stage` as `attempt`.

    Raises:
        LeaseLost: The job ended, moved on, was deleted, or was claimed again.
    """
    job = lock_job(session, job_id)
    if (
        job is None
        or job.status != JobStatus.RUNNING
        or job.stage != stage
        or job.attempt != attempt
        or job.lease_expires_at is None
    ):
        raise LeaseLost(f"Attempt {attempt} no longer owns {stage} of job {job_id}.")
    return job


def cancel_job(uow: UnitOfWork, publisher: Publisher, job: Job, *, now: datetime) -> Job:
    """Cancel a job that has not ended; windows in a forward pass are fenced away when they return.

    Raises:
        InvalidTransition: The job has ended.
    """
    _lock_again(uow.session, job)
    job.move_to(JobStatus.CANCELLED, now=now)
    _cancel_windows(uow.session, job, now=now)
    record_event(uow, publisher, job, EventType.JOB_CANCELLED, describe_update(job), now=now)
    return job


def fail_job(
    uow: UnitOfWork,
    publisher: Publisher,
    job: Job,
    *,
    error_code: str,
    error_message: str,
    now: datetime,
) -> Job:
    """End a locked job with an error.

    Raises:
        InvalidTransition: The job has ended.
    """
    job.move_to(
        JobStatus.FAILED, now=now, error_code=error_code, error_message=error_message[:2000]
    )
    _cancel_windows(uow.session, job, now=now)
    data = describe_update(job) | {
        "error": {"code": job.error_code, "message": job.error_message},
    }
    record_event(uow, publisher, job, EventType.JOB_FAILED, data, now=now)
    return job


def retry_job(
    uow: UnitOfWork, queue: JobQueue, publisher: Publisher, job: Job, *, now: datetime
) -> Job:
    """Queue a failed or cancelled job again; windows that are done stay done.

    `prepare` puts the other windows back, so that none is claimed before the job runs.

    Raises:
        InvalidTransition: The job is queued, running or completed.
    """
    _lock_again(uow.session, job)
    job.move_to(JobStatus.QUEUED, now=now)
    job.stage = JobStage.PREPARE
    job.failures = 0
    job.retry_at = None
    count_done_windows(uow.session, job)
    record_event(uow, publisher, job, EventType.JOB_UPDATED, describe_update(job), now=now)
    uow.after_commit(partial(queue.prepare, job.id, priority=job.priority))
    return job


def purge_job(
    uow: UnitOfWork, storage: Storage, job: Job, *, keep_unsent_deliveries: bool = False
) -> None:
    """Delete the job, what it left, and its media unless another job uses it.

    Rows go now, objects after the commit; the sweeper finds objects that this leaves behind.
    A worker that still holds the job finds its row gone and stops.
    """
    _lock_again(uow.session, job)
    media = uow.session.get_one(Media, job.media_id)
    uow.session.execute(delete(Job).where(Job.id == job.id))  # its rows go by ON DELETE CASCADE
    uow.session.expunge(job)
    forget_deliveries(uow.session, [job.id], keep_unsent=keep_unsent_deliveries)
    forget_answers(uow.session, [job.id])
    for key in forget_item(uow.session, job):
        uow.after_commit(partial(delete_object, storage, key))
    delete_windows_objects_later(uow, storage, job.id)
    if job.transcript_key is not None:
        uow.after_commit(partial(delete_object, storage, job.transcript_key))
    is_shared = uow.session.scalar(select(Job.id).where(Job.media_id == media.id).limit(1))
    if is_shared is None:
        uow.session.delete(media)
        if media.is_ours:
            uow.after_commit(partial(delete_object, storage, media.storage_key))


def delete_windows_objects_later(uow: UnitOfWork, storage: Storage, job_id: UUID) -> None:
    """Delete the audio of all windows of a job once the transaction is durable."""
    uow.after_commit(partial(delete_windows_objects, storage, job_id))


def delete_object(storage: Storage, key: str) -> None:
    """Delete an object; what cannot be deleted now is logged and left to the sweeper."""
    _quietly(partial(storage.delete, key), key)


def delete_windows_objects(storage: Storage, job_id: UUID) -> None:
    """Delete the audio of all windows of a job; what cannot be deleted is left to the sweeper."""
    prefix = windows_prefix(job_id)

    def delete_all() -> None:
        for info in list(storage.list(prefix)):
            storage.delete(info.key)

    _quietly(delete_all, prefix)


def windows_prefix(job_id: UUID) -> str:
    """Return where the audio of a job's windows lies in storage."""
    return f"windows/{job_id}/"


def voters_key(job_id: UUID) -> str:
    """Return where the audio that votes on a job's language lies in storage."""
    return f"{windows_prefix(job_id)}voters.flac"


def transcript_key(job_id: UUID) -> str:
    """Return where a job's transcript lies in storage."""
    return f"transcripts/{job_id}.json"


def count_done_windows(session: Session, job: Job) -> None:
    """Set the job's counters from its windows."""
    session.flush()
    is_done = Window.status == WindowStatus.DONE
    audio_ms = window_audio_ms(Window.num_samples)
    total, done, audio_ms_total, audio_ms_done = session.execute(
        select(
            func.count(),
            func.count().filter(is_done),
            func.coalesce(func.sum(audio_ms), 0),
            func.coalesce(func.sum(audio_ms).filter(is_done), 0),
        ).where(Window.job_id == job.id)
    ).one()
    job.windows_total, job.audio_ms_total = int(total), int(audio_ms_total)
    job.windows_done, job.audio_ms_done = int(done), int(audio_ms_done)


def window_audio_ms(num_samples: Any) -> Any:  # noqa: ANN401
    """Return a window's part of `audio_ms_total`, for a number or a column of them."""
    return num_samples // (SAMPLE_RATE_HZ // 1000)


def _lock_again(session: Session, job: Job) -> None:
    """Refresh a job that was read without a lock."""
    if lock_job(session, job.id) is None:
        raise JobNotFound(f"There is no job {job.id}.")


def _cancel_windows(session: Session, job: Job, *, now: datetime) -> None:
    session.execute(
        update(Window)
        .where(Window.job_id == job.id, Window.status.in_(UNFINISHED))
        .values(status=WindowStatus.CANCELLED, lease_expires_at=None, finished_at=now)
        .execution_options(synchronize_session=False)
    )


def _quietly(action: Callable[[], None], key: str) -> None:
    try:
        action()
    except Transient as exc:
        log.warning("object.left_behind", key=key, error=str(exc))
