"""What `prepare` writes: windows shard by shard, then that all of them are known."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.events import EventType, Publisher
from core.queues import JobQueue
from lifecycle.events import record_event
from lifecycle.jobs import count_done_windows, lock_owned_job, window_audio_ms
from lifecycle.media import describe_media
from lifecycle.progress import describe_update
from lifecycle.stages import enter_finish_if_recognised
from lifecycle.streaming import stream_segments
from models import Job, JobStage, Window, WindowStatus

MAX_WAKE_UPS = 4
"""Messages sent at once for one adapter: more engines than that are woken by each other."""


# Built once: putting a statement together costs more than running it.
_OF_JOB = select(Window).where(Window.job_id == bindparam("of_job")).order_by(Window.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWindow:
    """A window whose audio lies in storage; see `models.Window`."""

    index: int
    channel: int | None
    start_sample: int
    num_samples: int
    object_key: str
    byte_offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """One claim of `prepare` and what its windows inherit.

    Attributes:
        is_claimable: False keeps windows back until all are known (they vote on the language).
    """

    job_id: UUID
    attempt: int
    adapter: str
    revision: str | None
    is_claimable: bool


def list_windows(session: Session, job_id: UUID) -> list[Window]:
    """Return the job's windows in order."""
    return list(session.scalars(_OF_JOB, {"of_job": job_id}))


def resume_windows(uow: UnitOfWork, queue: JobQueue, claim: Preparation) -> None:
    """Put windows of an earlier try that ended unfinished back, and recount.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = _lock(uow.session, claim)
    revived = update(Window).where(
        Window.job_id == job.id,
        Window.status.in_((WindowStatus.FAILED, WindowStatus.CANCELLED)),
    )
    uow.session.execute(
        revived.values(
            status=WindowStatus.PENDING,
            failures=0,
            error_code=None,
            error_message=None,
            finished_at=None,
            started_at=None,
        ).execution_options(synchronize_session=False)
    )
    job.adapter, job.revision = claim.adapter, claim.revision
    count_done_windows(uow.session, job)
    if job.windows_total > job.windows_done:
        uow.after_commit(partial(queue.wake, claim.adapter, count=1))


def forget_windows(uow: UnitOfWork, claim: Preparation) -> None:
    """Delete all windows of the job: they are not those that its media gives now.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = _lock(uow.session, claim)
    uow.session.execute(delete(Window).where(Window.job_id == job.id))
    job.prepared_at = None
    count_done_windows(uow.session, job)


def add_voters(uow: UnitOfWork, claim: Preparation, voters: Sequence[tuple[int, int]]) -> None:
    """Record which excerpts vote on the language; see `models.Job.voters`.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    _lock(uow.session, claim).voters = [list(voter) for voter in voters]


def add_windows(
    uow: UnitOfWork,
    publisher: Publisher,
    queue: JobQueue,
    claim: Preparation,
    windows: Sequence[NewWindow],
    *,
    wake_ups: int,
    now: datetime,
) -> None:
    """Insert a shard's windows and wake engines for them.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = _lock(uow.session, claim)
    _insert(uow.session, job, claim, windows)
    record_event(uow, publisher, job, EventType.JOB_UPDATED, describe_update(job), now=now)
    if claim.is_claimable:
        uow.after_commit(
            partial(queue.wake, claim.adapter, count=max(1, min(MAX_WAKE_UPS, wake_ups)))
        )


def finish_preparation(
    uow: UnitOfWork,
    publisher: Publisher,
    queue: JobQueue,
    claim: Preparation,
    windows: Sequence[NewWindow],
    *,
    duration_ms: int,
    media_size_bytes: int | None,
    media_sha256: str | None,
    coverage: dict[str, Any],
    warnings: Sequence[str],
    wake_ups: int,
    now: datetime,
) -> None:
    """Insert the last windows and go on to `recognise`, or to `finish` if nothing is left.

    Args:
        media_size_bytes: As it was read; None if it was known before.
        media_sha256: Likewise.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = _lock(uow.session, claim)
    _insert(uow.session, job, claim, windows)
    job.adapter, job.revision = claim.adapter, claim.revision
    job.duration_ms = duration_ms
    job.coverage = coverage
    job.warnings = list(dict.fromkeys([*job.warnings, *warnings]))
    job.prepared_at = now
    describe_media(uow.session, job.media_id, size_bytes=media_size_bytes, sha256=media_sha256)
    if job.attempt > 1 or not claim.is_claimable:  # windows may have been held back
        _let_claim(uow.session, job)
    _enter_recognition(uow, publisher, queue, job, wake_ups=wake_ups, now=now)


def continue_prepared(
    uow: UnitOfWork,
    publisher: Publisher,
    queue: JobQueue,
    claim: Preparation,
    *,
    now: datetime,
) -> None:
    """Take a job up again whose windows were all known when it ended: nothing is decoded again.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    resume_windows(uow, queue, claim)
    job = _lock(uow.session, claim)
    _let_claim(uow.session, job)
    _enter_recognition(uow, publisher, queue, job, wake_ups=MAX_WAKE_UPS, now=now)


def _enter_recognition(
    uow: UnitOfWork,
    publisher: Publisher,
    queue: JobQueue,
    job: Job,
    *,
    wake_ups: int,
    now: datetime,
) -> None:
    job.stage = JobStage.RECOGNISE
    job.failures = 0
    job.lease_expires_at = None
    if job.windows_done:  # else no segment can have become final
        stream_segments(uow, publisher, job, now=now)
    enter_finish_if_recognised(uow, queue, job)
    record_event(uow, publisher, job, EventType.JOB_UPDATED, describe_update(job), now=now)
    if job.stage == JobStage.RECOGNISE and job.adapter is not None:
        count = max(1, min(MAX_WAKE_UPS, wake_ups))
        uow.after_commit(partial(queue.wake, job.adapter, count=count))


def _insert(session: Session, job: Job, claim: Preparation, windows: Sequence[NewWindow]) -> None:
    job.windows_total += len(windows)
    job.audio_ms_total += sum(window_audio_ms(window.num_samples) for window in windows)
    session.add_all(_row(job, claim, window) for window in windows)


def _let_claim(session: Session, job: Job) -> None:
    """Let engines claim windows that were held back until all are known."""
    session.flush()
    session.execute(
        update(Window)
        .where(Window.job_id == job.id, Window.is_claimable.is_(False))
        .values(is_claimable=True)
        .execution_options(synchronize_session=False)
    )


def _lock(session: Session, claim: Preparation) -> Job:
    return lock_owned_job(session, claim.job_id, attempt=claim.attempt, stage=JobStage.PREPARE)


def _row(job: Job, claim: Preparation, window: NewWindow) -> Window:
    return Window(
        job_id=job.id,
        index=window.index,
        channel=window.channel,
        start_sample=window.start_sample,
        num_samples=window.num_samples,
        object_key=window.object_key,
        byte_offset=window.byte_offset,
        num_bytes=window.num_bytes,
        adapter=claim.adapter,
        model=job.model,
        priority=job.priority,
        key_id=job.key_id,
        is_claimable=claim.is_claimable,
    )
