"""The engine's claim: pending windows of all jobs, by priority, then fairly, under a lease."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    literal,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from lifecycle.fairness import Rotation, interleave, rotate
from models import Window, WindowStatus

MAX_KEYS = 16
"""Keys looked at in one claim; more of them take turns over several claims."""

ACTIVE_JOBS = 16
"""A key's oldest jobs of one priority that share its turn. Fewer would let long recordings hold up
short ones; all of them would finish an archive's recordings only at its very end."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A window that could be claimed, as far as choosing needs to know it."""

    id: UUID
    key_id: UUID
    job_id: UUID
    num_samples: int
    failures: int


Choose = Callable[[Sequence[Candidate]], Sequence[Candidate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who claims what.

    Attributes:
        pool: About how many windows to choose from.
        engine: Name for `windows.claimed_by`.
    """

    adapter: str
    model: str
    engine: str
    lease: timedelta
    pool: int


FIRST = UUID(int=0)
"""Sorts before every id."""


def _skip_scan(waiting: ColumnElement[bool], column: InstrumentedAttribute[UUID]) -> Select[UUID]:
    """Return a statement for the first `limit` distinct values of an indexed column `after` one.

    DISTINCT would read every waiting window. This reads one index entry a value, by the recursive
    query that stands in for a loose index scan on both databases.
    Source: https://wiki.postgresql.org/wiki/Loose_indexscan
    """
    values = select(column).where(waiting).order_by(column).limit(1)
    start = values.where(column > bindparam("after")).scalar_subquery()
    found = select(start.label("value"), literal(1, Integer).label("n")).cte(
        "found", recursive=True
    )
    following = values.where(column > found.c.value).scalar_subquery()
    found = found.union_all(
        select(following, found.c.n + 1).where(
            found.c.value.is_not(None), found.c.n < bindparam("limit")
        )
    )
    return select(found.c.value).where(found.c.value.is_not(None))


# Built once: putting a statement together costs more than running it.
_CLAIMABLE = and_(
    Window.adapter == bindparam("adapter"),
    Window.model == bindparam("model"),
    Window.status == WindowStatus.PENDING,
    Window.is_claimable.is_(True),
)
_NEXT_PRIORITY = (
    select(Window.priority)
    .where(_CLAIMABLE, Window.priority > bindparam("after"))
    .order_by(Window.priority)
    .limit(1)
)
_WAITING = and_(_CLAIMABLE, Window.priority == bindparam("priority"))
_OF_KEY = and_(_WAITING, Window.key_id == bindparam("key_id"))
_KEYS = _skip_scan(_WAITING, Window.key_id)
_JOBS = _skip_scan(_OF_KEY, Window.job_id)
_WINDOWS = (
    select(Window.id, Window.num_samples, Window.failures)
    .where(_OF_KEY, Window.job_id == bindparam("job_id"))
    .order_by(Window.index)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
)


def find_waiting_models(session: Session, adapter: str, models: Sequence[str]) -> dict[str, int]:
    """Return those of `models` that have claimable windows, with their most urgent priority."""
    waiting: dict[str, int] = {}
    for model in models:
        priority = session.scalar(_NEXT_PRIORITY, {"adapter": adapter, "model": model, "after": -1})
        if priority is not None:
            waiting[model] = priority
    return waiting


def claim_windows(
    session: Session,
    request: ClaimRequest,
    *,
    choose: Choose,
    rotation: Rotation,
    now: datetime,
) -> list[Window]:
    """Lease what `choose` picks from the candidates; empty when nothing waits.

    On Postgres candidates are locked and locked ones are skipped, so engines that claim at once
    get different windows and never wait. On SQLite the transaction is the lock.

    Args:
        choose: Gets the candidates, most deserving first, and returns some of them.
    """
    candidates = _find_candidates(session, request, rotation)
    chosen = choose(candidates) if candidates else ()
    if not chosen:
        return []
    claimed = session.scalars(
        update(Window)
        .where(Window.id.in_([candidate.id for candidate in chosen]))
        .values(
            status=WindowStatus.RUNNING,
            attempt=Window.attempt + 1,
            lease_expires_at=now + request.lease,
            started_at=None,
            claimed_by=request.engine,
        )
        .returning(Window)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    rotation.advance([(candidate.key_id, candidate.job_id) for candidate in chosen])
    by_id = {window.id: window for window in claimed}
    return [by_id[candidate.id] for candidate in chosen]


def _find_candidates(
    session: Session, request: ClaimRequest, rotation: Rotation
) -> list[Candidate]:
    waiting: dict[str, Any] = {"adapter": request.adapter, "model": request.model}
    found: list[Candidate] = []
    priority = session.scalar(_NEXT_PRIORITY, {**waiting, "after": -1})
    while priority is not None and len(found) < request.pool:
        pool = request.pool - len(found)
        found += _find_in_priority(session, {**waiting, "priority": priority}, rotation, pool)
        priority = session.scalar(_NEXT_PRIORITY, {**waiting, "after": priority})
    return found


def _find_in_priority(
    session: Session, waiting: Mapping[str, Any], rotation: Rotation, pool: int
) -> list[Candidate]:
    keys = _list_keys(session, waiting, rotation.last_key, min(MAX_KEYS, pool))
    jobs = {key: _list_jobs(session, waiting, key, rotation.last_job.get(key)) for key in keys}
    # Each job gives as many windows as it must for the pool to be full, its first ones.
    share = -(-pool // max(1, sum(len(ids) for ids in jobs.values())))
    turns = interleave({key: [[(key, job_id)] for job_id in ids] for key, ids in jobs.items()})
    by_key: dict[UUID, list[list[Candidate]]] = {key: [] for key in keys}
    for key, job_id in list(turns)[:pool]:
        by_key[key].append(_list_windows(session, waiting, key, job_id, share))
    return list(interleave(by_key))


def _list_windows(
    session: Session, waiting: Mapping[str, Any], key: UUID, job_id: UUID, limit: int
) -> list[Candidate]:
    """Lock and return a job's next windows."""
    rows = session.execute(_WINDOWS, {**waiting, "key_id": key, "job_id": job_id, "limit": limit})
    return [Candidate(row.id, key, job_id, row.num_samples, row.failures) for row in rows]


def _list_keys(
    session: Session, waiting: Mapping[str, Any], last: UUID | None, limit: int
) -> list[UUID]:
    """Return keys with work, beginning after `last`."""
    asked = {**waiting, "limit": limit}
    later = list(session.scalars(_KEYS, {**asked, "after": last or FIRST}))
    if last is None or len(later) == limit:
        return later
    first = session.scalars(_KEYS, {**asked, "after": FIRST})
    return list(dict.fromkeys([*later, *first]))[:limit]


def _list_jobs(
    session: Session, waiting: Mapping[str, Any], key: UUID, last: UUID | None
) -> list[UUID]:
    """Return a key's oldest jobs with work, beginning after `last` (ids are ordered by time)."""
    asked = {**waiting, "key_id": key, "limit": ACTIVE_JOBS, "after": FIRST}
    return rotate(list(session.scalars(_JOBS, asked)), last)
