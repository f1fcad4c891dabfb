"""A job's events, every one once and in order: from the database, then live."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import anyio
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from api.context import ApiContext
from api.hub import LiveEvent
from core.db import read_session
from core.events import EventType, JobEvent
from models import Event, Job, JobStatus

PAGE = 500
HEARTBEAT_S = 10.0
"""How often a silent stream shows that it lives. The database is read at each, because a publisher
whose Redis failed leaves no trace in ours."""

POLL_S = 1.0
"""How often the database is read while Redis is away."""


@dataclass(frozen=True, slots=True)
class _Page:
    events: list[LiveEvent]
    is_over: bool


async def follow(
    context: ApiContext, job_id: UUID, *, after: int = 0, may_leave: bool = False
) -> AsyncGenerator[LiveEvent | None]:
    """Yield the events with `seq` above `after`; None now and then while nothing happens.

    Ends after the job's last event, or when the job is deleted; where it may leave, also when the
    server ends. The subscription exists before the first look at the database, so nothing falls
    between the two.
    """
    with context.hub.subscribe(job_id) as subscription:
        seq = after
        while not (may_leave and context.hub.is_closing):
            read = partial(read_page, context.sessions, job_id, seq)
            page = await anyio.to_thread.run_sync(read)
            for event in page.events:
                seq = event.seq
                yield event
            if page.is_over:
                return
            if len(page.events) == PAGE or (page.events and page.events[-1].type.is_last):
                continue
            wait_s = HEARTBEAT_S if context.hub.is_connected else POLL_S
            is_trusted = True
            while is_trusted and (live := await subscription.take(timeout_s=wait_s)) is not None:
                fresh = _continue(live, seq)
                for event in fresh:
                    seq = event.seq
                    yield event
                if not live:
                    yield None
                is_trusted = bool(live) and seq >= live[-1].seq and not live[-1].type.is_last


def _continue(live: list[LiveEvent], seq: int) -> list[LiveEvent]:
    """Return the new events up to the first gap."""
    fresh: list[LiveEvent] = []
    for event in live:
        if event.seq == seq + len(fresh) + 1:
            fresh.append(event)
    return fresh


def read_page(sessions: sessionmaker[Session], job_id: UUID, after: int) -> _Page:
    """Return the next events from the database, and whether none can follow them."""
    with read_session(sessions) as session:
        job = session.execute(select(Job.status, Job.last_seq).where(Job.id == job_id)).first()
        if job is None:
            return _Page([], is_over=True)
        rows = session.scalars(
            select(Event)
            .where(Event.job_id == job_id, Event.seq > after)
            .order_by(Event.seq)
            .limit(PAGE)
        )
        events = [_live(row) for row in rows]
    newest = events[-1].seq if events else after
    is_over = JobStatus(job.status).is_final and newest >= job.last_seq
    return _Page(events, is_over=is_over)


def _live(row: Event) -> LiveEvent:
    event = JobEvent(
        job_id=row.job_id,
        seq=row.seq,
        type=EventType(row.type),
        data=row.data,
        created_at=row.created_at,
    )
    return LiveEvent(event.seq, event.type, event.to_json())
