"""The text of streaming jobs in pieces: told once, in order, never taken back.

`jobs.told_head` is what was told of the text that follows `jobs.streamed_until_ms`: the beginning
of the first window that is not settled, told while it is being decoded. When the window is done,
only what is missing follows.
"""

from datetime import datetime

import structlog
from sqlalchemy import select

from core.db import UnitOfWork
from core.events import EventType, Publisher
from core.options import Channels, OnWindowFailure, TranscribeOptions
from core.transcript import join_texts, joint
from lifecycle.events import record_event
from models import Event, Job

log = structlog.get_logger(__name__)

DIVERGED = "stream_diverged"
"""Warning: a window had to be read again after its text was told, and reads otherwise now."""


def has_deltas(job: Job) -> bool:
    """Whether the job wants its text in pieces."""
    return bool(job.options.get("stream"))


def may_tell_early(options: TranscribeOptions) -> bool:
    """Whether text may be told before its window is done.

    Not where other channels' segments may come before it, and not where a window that keeps
    failing leaves a gap: there its text would have to be taken back.
    """
    return (
        options.stream
        and options.channels is not Channels.SPLIT
        and options.on_window_failure is not OnWindowFailure.GAP
    )


def tell_early(
    uow: UnitOfWork, publisher: Publisher, job: Job, text: str, *, now: datetime
) -> bool:
    """Tell what `text`, the head window's so far, adds to what was told of it.

    A later try of the window says nothing until it is beyond that, and stays silent until it is
    done if it reads otherwise.

    Returns:
        Whether there was anything to tell.
    """
    told = job.told_head
    if len(text) <= len(told) or not text.startswith(told):
        return False
    _tell(uow, publisher, job, text[len(told) :], is_start=not told, now=now)
    job.told_head = text
    return True


def tell_final(
    uow: UnitOfWork, publisher: Publisher, job: Job, head: str, rest: str, *, now: datetime
) -> None:
    """Tell what is missing of text that is final.

    Args:
        head: The text of the window that `told_head` belongs to.
        rest: The text of windows after it.
    """
    told = job.told_head
    job.told_head = ""
    if not head.startswith(told):
        log.warning("stream.diverged", job_id=str(job.id), told=len(told), final=len(head))
        job.warnings = list(dict.fromkeys([*job.warnings, DIVERGED]))
        missing = rest
    elif not told:
        missing = join_texts((head, rest))
    else:
        missing = f"{head[len(told) :]}{joint(head, rest)}{rest}"
        if missing:
            _tell(uow, publisher, job, missing, is_start=False, now=now)
        return
    if missing:
        _tell(uow, publisher, job, missing, is_start=True, now=now)


def _tell(
    uow: UnitOfWork, publisher: Publisher, job: Job, text: str, *, is_start: bool, now: datetime
) -> None:
    """Record a delta; at the start of a window with what belongs between it and the text before."""
    if is_start:
        text = f"{joint(_last_delta(uow, job), text)}{text}"
    record_event(uow, publisher, job, EventType.TEXT_DELTA, {"delta": text}, now=now)


def _last_delta(uow: UnitOfWork, job: Job) -> str:
    uow.session.flush()
    data = uow.session.scalar(
        select(Event.data)
        .where(Event.job_id == job.id, Event.type == EventType.TEXT_DELTA)
        .order_by(Event.seq.desc())
        .limit(1)
    )
    return "" if data is None else str(data["delta"])
