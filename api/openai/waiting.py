"""Waiting for a job on behalf of a caller who holds the line."""

from contextlib import aclosing
from enum import Enum, auto
from functools import partial
from uuid import UUID

import anyio
import structlog
from fastapi import Request

from api.context import ApiContext
from api.deps import now
from api.hub import LiveEvent
from api.job_events import follow
from api.problems import JobFailed
from core.db import read_session, unit_of_work
from core.errors import Conflict, JobNotFound, ScriptoriumError
from core.events import EventType
from core.transcript import Transcript
from lifecycle.jobs import cancel_job, get_job
from lifecycle.transcripts import load_transcript
from models import JobStatus

log = structlog.get_logger(__name__)

_BEFORE_START = frozenset({EventType.JOB_UPDATED})
_QUEUED = '"status":"queued"'


class Outcome(Enum):
    """How the waiting ended."""

    STARTED = auto()
    ENDED = auto()
    TIMED_OUT = auto()
    LEFT = auto()


async def wait(context: ApiContext, request: Request, job_id: UUID, *, until_end: bool) -> Outcome:
    """Follow the job's events until it has started or ended, the time is up, or the caller left."""
    outcome = Outcome.LEFT
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        outcome = await _follow(context, job_id, until_end=until_end)
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


async def give_up(context: ApiContext, key_id: UUID, job_id: UUID) -> None:
    """Cancel a job that nobody waits for any more; nothing happens if it has ended."""
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(partial(_cancel, context, key_id, job_id))


def _cancel(context: ApiContext, key_id: UUID, job_id: UUID) -> None:
    try:
        with unit_of_work(context.sessions) as uow:
            job = get_job(uow.session, key_id, job_id)
            cancel_job(uow, context.publisher, job, now=now())
    except (Conflict, JobNotFound):
        return
    log.info("job.abandoned", job_id=str(job_id))


async def _follow(context: ApiContext, job_id: UUID, *, until_end: bool) -> Outcome:
    began = anyio.current_time()
    is_waiting = True
    with anyio.move_on_after(context.settings.sync_start_s) as scope:
        async with aclosing(follow(context, job_id)) as events:
            async for event in events:
                if event is None or not is_waiting or not has_started(event):
                    continue
                if not until_end and not event.type.is_last:
                    return Outcome.STARTED
                is_waiting = False
                scope.deadline = began + context.settings.sync_total_s
        return Outcome.ENDED
    return Outcome.TIMED_OUT
