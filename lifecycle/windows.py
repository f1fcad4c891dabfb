"""What becomes of claimed windows; every write is fenced by the attempt that claimed them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, select, tuple_, update
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.errors import InvalidOption
from core.events import EventType, Publisher
from core.options import OnWindowFailure
from core.queues import JobQueue
from core.transcript import Hypothesis, dump_hypothesis, samples_to_ms
from lifecycle.events import record_event
from lifecycle.jobs import fail_job, lock_job, window_audio_ms
from lifecycle.progress import describe_update, percent_done
from lifecycle.stages import describe_error, enter_finish_if_recognised
from lifecycle.streaming import stream_segments, stream_text
from models import Job, JobStatus, Window, WindowStatus

# Built once, on the table: putting an ORM's UPDATE together costs more than running it.
_WINDOWS = Window.metadata.tables[Window.__tablename__]
_COMPLETE = (
    update(_WINDOWS)
    .where(
        _WINDOWS.c.id == bindparam("window_id"),
        _WINDOWS.c.attempt == bindparam("claim"),
        _WINDOWS.c.status == WindowStatus.RUNNING,
    )
    .values(
        status=WindowStatus.DONE,
        hypothesis=bindparam("answer"),
        lease_expires_at=None,
        finished_at=bindparam("now"),
    )
    .returning(_WINDOWS.c.num_samples)
)


_OWNED = (
    select(_WINDOWS.c.id)
    .where(
        tuple_(_WINDOWS.c.id, _WINDOWS.c.attempt).in_(bindparam("leases", expanding=True)),
        _WINDOWS.c.status == WindowStatus.RUNNING,
    )
    .with_for_update(skip_locked=True)
)


@dataclass(frozen=True, slots=True)
class WindowLease:
    """One claim of one window."""

    window_id: UUID
    attempt: int


def lease_of(window: Window) -> WindowLease:
    """Return the claim that `window`, as just claimed, stands for."""
    return WindowLease(window.id, window.attempt)


def renew_windows(
    session: Session, leases: Sequence[WindowLease], *, lease: timedelta, now: datetime
) -> None:
    """Prolong claims; those that are lost stay lost."""
    _update_owned(session, leases, {"lease_expires_at": now + lease})


def begin_windows(session: Session, leases: Sequence[WindowLease], *, now: datetime) -> set[UUID]:
    """Mark that the forward pass begins and return the windows that are still ours.

    A worker that dies from now on counts as a failure of these windows; before, it does not.
    """
    return _update_owned(session, leases, {"started_at": now})


def release_windows(session: Session, leases: Sequence[WindowLease]) -> set[UUID]:
    """Give claims back without blame and return those that were still ours."""
    return _update_owned(
        session,
        leases,
        {"status": WindowStatus.PENDING, "lease_expires_at": None, "started_at": None},
    )


def complete_windows(
    uow: UnitOfWork,
    publisher: Publisher,
    queue: JobQueue,
    job_id: UUID,
    results: Sequence[tuple[WindowLease, Hypothesis]],
    *,
    now: datetime,
) -> int:
    """Store hypotheses of one job's windows and what follows from them; return how many counted.

    Late results (the job ended, the window was claimed again) change nothing.
    """
    job = lock_job(uow.session, job_id)
    if job is None or job.status != JobStatus.RUNNING:
        return 0
    before = percent_done(job)
    found = [
        uow.session.scalar(
            _COMPLETE,
            {
                "window_id": lease.window_id,
                "claim": lease.attempt,
                "answer": dump_hypothesis(hypothesis),
                "now": now,
            },
        )
        for lease, hypothesis in results
    ]
    stored = [num_samples for num_samples in found if num_samples is not None]
    if stored:
        stream_segments(uow, publisher, job, now=now)  # before the row changes: it would be written
        for num_samples in stored:
            _count(job, num_samples)
        enter_finish_if_recognised(uow, queue, job)
        if int(percent_done(job)) > int(before):  # at most a hundred of these a job
            data = describe_update(job)
            record_event(uow, publisher, job, EventType.JOB_UPDATED, data, now=now)
    return len(stored)


def fail_window(
    uow: UnitOfWork,
    publisher: Publisher,
    queue: JobQueue,
    job_id: UUID,
    lease: WindowLease,
    *,
    error: Exception,
    max_attempts: int,
    now: datetime,
) -> bool:
    """Count a failure of a claimed window; after the last one its job fails, or gets a gap.

    An option that the model refuses (`InvalidOption`) fails the job at once: every window of it and
    every further try would be refused alike.

    Returns:
        Whether the window was still ours.
    """
    job = lock_job(uow.session, job_id)
    window = uow.session.scalars(
        select(Window).where(*_owned(lease)).execution_options(populate_existing=True)
    ).one_or_none()
    if job is None or window is None:
        return False
    window.failures += 1
    window.lease_expires_at = None
    is_refused = isinstance(error, InvalidOption)
    if window.failures < max_attempts and not is_refused:
        window.status = WindowStatus.PENDING
        window.started_at = None
        return True
    window.status = WindowStatus.FAILED
    window.error_code, window.error_message = describe_error(error)
    window.finished_at = now
    if job.options.get("on_window_failure") == OnWindowFailure.GAP and not is_refused:
        _count(job, window.num_samples)
        stream_segments(uow, publisher, job, now=now)
        enter_finish_if_recognised(uow, queue, job)
    elif job.status == JobStatus.RUNNING:
        start_s = samples_to_ms(window.start_sample) / 1000
        end_s = samples_to_ms(window.start_sample + window.num_samples) / 1000
        fail_job(
            uow,
            publisher,
            job,
            error_code=window.error_code,
            error_message=window.error_message
            if is_refused
            else (
                f"The audio from {start_s:.1f} s to {end_s:.1f} s failed "
                f"{window.failures} times: {window.error_message}"
            ),
            now=now,
        )
    return True


def tell_text(
    uow: UnitOfWork,
    publisher: Publisher,
    job_id: UUID,
    lease: WindowLease,
    text: str,
    *,
    now: datetime,
) -> bool:
    """Publish what a claimed window's text begins with, if its turn has come.

    Args:
        text: All of the window's text so far.

    Returns:
        Whether an event was recorded.
    """
    job = lock_job(uow.session, job_id)
    window = uow.session.scalars(
        select(Window).where(*_owned(lease)).execution_options(populate_existing=True)
    ).one_or_none()
    if job is None or job.status != JobStatus.RUNNING or window is None:
        return False
    return stream_text(uow, publisher, job, window, text, now=now)


def settle_language(
    uow: UnitOfWork, publisher: Publisher, job_id: UUID, language: str, *, now: datetime
) -> str | None:
    """Set the job's language unless it is settled; return the settled one (None: job is gone)."""
    job = lock_job(uow.session, job_id)
    if job is None:
        return None
    if job.language is None:
        job.language = language
        record_event(uow, publisher, job, EventType.JOB_UPDATED, describe_update(job), now=now)
    return job.language


def _count(job: Job, num_samples: int) -> None:
    job.windows_done += 1
    job.audio_ms_done += window_audio_ms(num_samples)


def _owned(lease: WindowLease) -> tuple[Any, ...]:
    return (
        Window.id == lease.window_id,
        Window.attempt == lease.attempt,
        Window.status == WindowStatus.RUNNING,
    )


def _update_owned(
    session: Session, leases: Sequence[WindowLease], values: dict[str, Any]
) -> set[UUID]:
    """Change those of our windows that nobody else is changing; return their ids.

    Rows of several jobs are locked here without their jobs, so waiting for one could deadlock with
    a transaction that locks them in another order. A locked row is being taken away from us (or
    renewed by our own heartbeat, which callers exclude by a lock of their own).
    """
    if not leases:
        return set()
    owned = session.scalars(_OWNED, {"leases": [(x.window_id, x.attempt) for x in leases]}).all()
    if owned:
        session.execute(update(_WINDOWS).where(_WINDOWS.c.id.in_(owned)).values(values))
    return set(owned)
