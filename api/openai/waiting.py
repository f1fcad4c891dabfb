"""Waiting for a job on behalf of a caller who holds the line."""

from contextlib import aclosing
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from uuid import UUID

import anyio
import structlog
from fastapi import Request

from api.context import ApiContext
from api.deps import now
from api.hub import LiveEvent
from api.job_events import follow
from api.openai.waiters import Place
from api.problems import JobFailed, describe
from core.db import read_session, unit_of_work
from core.errors import Conflict, InvalidTransition, JobNotFound, ScriptoriumError
from core.events import EventType
from core.transcript import Transcript
from lifecycle.jobs import cancel_job, get_job, lock_job, retry_job
from lifecycle.transcripts import load_transcript
from models import Job, JobStatus

log = structlog.get_logger(__name__)

_BEFORE_START = frozenset({EventType.JOB_UPDATED})
_QUEUED = '"status":"queued"'


class Outcome(Enum):
    """How the waiting ended."""

    STARTED = auto()
    ENDED = auto()
    TIMED_OUT = auto()
    LEFT = auto()


async def wait(
    context: ApiContext, request: Request, job_id: UUID, *, until_end: bool, after: int = 0
) -> Outcome:
    """Follow the job's events until it has started or ended, the time is up, or the caller left.

    Args:
        after: Number of the last event that does not count: it is of an earlier run of the job.
    """
    outcome = Outcome.LEFT
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        outcome = await _follow(context, job_id, until_end=until_end, after=after)
        tasks.cancel_scope.cancel()
    return outcome


def has_started(event: LiveEvent) -> bool:
    """Whether `event` shows that a worker has taken the job (or that it has ended)."""
    return event.type not in _BEFORE_START or _QUEUED not in event.body


def get_result(context: ApiContext, key_id: UUID, job_id: UUID) -> Transcript:
    """Return the transcript of a job that has ended; blocks.

    Raises:
        JobFailed: It failed.
        Conflict: It was cancelled or deleted meanwhile.
    """
    with read_session(context.sessions) as session:
        try:
            job = get_job(session, key_id, job_id)
        except JobNotFound as exc:
            raise Conflict("The job was deleted before it ended.") from exc
        if job.status == JobStatus.FAILED:
            raise JobFailed(job.error_code or ScriptoriumError.code, job.error_message or "")
        if job.status == JobStatus.CANCELLED:
            raise Conflict("The job was cancelled.")
        return load_transcript(session, job)


async def give_up(context: ApiContext, key_id: UUID, job_id: UUID, place: Place) -> None:
    """Leave, and cancel the job unless it has ended or somebody else waits for it."""
    with anyio.CancelScope(shield=True):
        await place.leave()
        await anyio.to_thread.run_sync(partial(_cancel, context, key_id, job_id, place))


def take_up(context: ApiContext, key_id: UUID, job_id: UUID) -> int:
    """Prepare for waiting for the job of an earlier request; blocks.

    Enter `Waiters` before. What that request did not get an answer from goes on: a job that was
    cancelled because its caller left or lost patience, and one that failed through no fault of
    the request.

    Returns:
        Number of the last event that does not count.

    Raises:
        Conflict: The job was deleted meanwhile.
    """
    try:
        with unit_of_work(context.sessions) as uow:
            job = get_job(uow.session, key_id, job_id)
            # Who was leaving has cancelled it by now, or sees that we wait; see `_cancel`.
            lock_job(uow.session, job_id)
            if not _is_unanswered(job):
                return 0
            last_seq = job.last_seq
            retry_job(uow, context.queue, context.publisher, job, now=now())
    except InvalidTransition:  # another repetition was faster
        return 0
    except JobNotFound as exc:
        raise Conflict("The job was deleted before it ended.") from exc
    log.info("job.taken_up", job_id=str(job_id))
    return last_seq


def _is_unanswered(job: Job) -> bool:
    if job.status == JobStatus.FAILED:
        failure = JobFailed(job.error_code or ScriptoriumError.code, "")
        return describe(failure).status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return job.status == JobStatus.CANCELLED


def _cancel(context: ApiContext, key_id: UUID, job_id: UUID, place: Place) -> None:
    try:
        with unit_of_work(context.sessions) as uow:
            job = get_job(uow.session, key_id, job_id)
            lock_job(uow.session, job_id)  # whoever comes now waits, and then takes it up again
            if place.has_company():
                return
            cancel_job(uow, context.publisher, job, now=now())
    except (Conflict, JobNotFound):
        return
    log.info("job.abandoned", job_id=str(job_id))


async def _follow(context: ApiContext, job_id: UUID, *, until_end: bool, after: int) -> Outcome:
    began = anyio.current_time()
    is_waiting = True
    with anyio.move_on_after(context.settings.sync_start_s) as scope:
        async with aclosing(follow(context, job_id, after=after)) as events:
            async for event in events:
                if event is None or not is_waiting or not has_started(event):
                    continue
                if not until_end and not event.type.is_last:
                    return Outcome.STARTED
                is_waiting = False
                scope.deadline = began + context.settings.sync_total_s
        return Outcome.ENDED
    return Outcome.TIMED_OUT
