"""Room for short recordings beside long ones: one thread of a media worker takes no long one.

A recording of hours is decoded for minutes, and two of them would keep everybody waiting who sends
ten seconds and holds the line. Which jobs wait is written in their rows, so a message for a long
one that finds no room is dropped: the next one that ends, or the sweeper, sends another.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from core.db import read_session
from lifecycle.recovery import list_waiting_stages
from models import Job, JobStage
from workers.context import WorkerContext

log = structlog.get_logger(__name__)

LONG_MS = 15 * 60_000
BIG_BYTES = 64 * 1024**2
"""Media whose length is not known counts as long from here on, or where its size is not known."""

_NUM_TOLD = 3
"""Jobs that are told when a long one ends; two may end at once, and some may be taken already."""


@contextmanager
def lane(context: WorkerContext) -> Iterator[Callable[[Job], bool]]:
    """Yield what says whether there is room for a job; the place is held until the end."""
    is_held = False

    def admit(job: Job) -> bool:
        nonlocal is_held
        if not _is_long(job):
            return True
        is_held = context.long_media.acquire(blocking=False)
        if not is_held:
            log.info("stage.deferred", job_id=str(job.id))
        return is_held

    try:
        yield admit
    finally:
        if is_held:
            context.long_media.release()
            _tell_next(context)


def _is_long(job: Job) -> bool:
    length_ms = job.duration_ms or job.estimated_ms
    if length_ms is not None:
        return length_ms >= LONG_MS
    size_bytes = job.media.size_bytes
    return size_bytes is None or size_bytes >= BIG_BYTES


def _tell_next(context: WorkerContext) -> None:
    with read_session(context.sessions) as session:
        waiting = list_waiting_stages(session, limit=20, now=context.now())
    jobs = [stage for stage in waiting if stage.stage is JobStage.PREPARE]
    for stage in jobs[:_NUM_TOLD]:
        context.queue.prepare(stage.job_id, priority=stage.priority)
