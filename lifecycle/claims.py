"""The engine's claim: pending windows of all jobs, by priority, then fairly, under a lease."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, Integer, Select, and_, literal, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from lifecycle.fairness import Rotation, interleave, rotate
from models import Window, WindowStatus

MAX_KEYS = 32
"""Keys looked at in one claim; more of them take turns over several claims."""

ACTIVE_JOBS = 16
"""A key's oldest jobs of one priority that share its turn. Fewer would let long recordings hold up
short ones; all of them would finish an archive's recordings only at its very end."""

Choose = Callable[[Sequence[Window]], Sequence[Window]]


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


def find_waiting_models(session: Session, adapter: str, models: Sequence[str]) -> dict[str, int]:
    """Return those of `models` that have claimable windows, with their most urgent priority."""
    waiting: dict[str, int] = {}
    for model in models:
        priority = session.scalar(_next_priority(adapter, model, after=None))
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
    chosen = list(choose(candidates)) if candidates else []
    if not chosen:
        return []
    session.execute(
        update(Window)
        .where(Window.id.in_([window.id for window in chosen]))
        .values(
            status=WindowStatus.RUNNING,
            attempt=Window.attempt + 1,
            lease_expires_at=now + request.lease,
            started_at=None,
            claimed_by=request.engine,
        )
        .execution_options(synchronize_session="fetch")
    )
    rotation.advance([(window.key_id, window.job_id) for window in chosen])
    return chosen


def _find_candidates(session: Session, request: ClaimRequest, rotation: Rotation) -> list[Window]:
    found: list[Window] = []
    priority = None
    while len(found) < request.pool:
        priority = session.scalar(_next_priority(request.adapter, request.model, after=priority))
        if priority is None:
            break
        found += _find_in_priority(session, request, priority, rotation, request.pool - len(found))
    return found


def _find_in_priority(
    session: Session, request: ClaimRequest, priority: int, rotation: Rotation, pool: int
) -> list[Window]:
    waiting = and_(_claimable(request.adapter, request.model), Window.priority == priority)
    keys = _list_keys(session, waiting, rotation.last_key)
    jobs = {key: _list_jobs(session, waiting, key, rotation.last_job.get(key)) for key in keys}
    # Each job gives as much as it must for the pool to be full, its first windows.
    share = -(-pool // max(1, sum(len(ids) for ids in jobs.values())))
    by_key: dict[UUID, list[list[Window]]] = {key: [] for key in keys}
    turns = [
        (key, job_id)
        for key, job_id in interleave({k: [[(k, j)] for j in v] for k, v in jobs.items()})
    ]
    for key, job_id in turns[:pool]:
        rows = session.scalars(
            select(Window)
            .where(waiting, Window.key_id == key, Window.job_id == job_id)
            .order_by(Window.index)
            .limit(share)
            .with_for_update(skip_locked=True)
        )
        by_key[key].append(list(rows))
    return list(interleave(by_key))


def _list_keys(session: Session, waiting: ColumnElement[bool], last: UUID | None) -> list[UUID]:
    """Return keys with work, beginning after `last`."""
    later = [] if last is None else _skip_scan(session, waiting, Window.key_id, last, MAX_KEYS)
    if len(later) == MAX_KEYS:
        return later
    first = _skip_scan(session, waiting, Window.key_id, None, MAX_KEYS)
    return list(dict.fromkeys([*later, *first]))[:MAX_KEYS]


def _list_jobs(
    session: Session, waiting: ColumnElement[bool], key: UUID, last: UUID | None
) -> list[UUID]:
    """Return a key's oldest jobs with work, beginning after `last` (ids are ordered by time)."""
    of_key = and_(waiting, Window.key_id == key)
    return rotate(_skip_scan(session, of_key, Window.job_id, None, ACTIVE_JOBS), last)


def _skip_scan(
    session: Session,
    waiting: ColumnElement[bool],
    column: InstrumentedAttribute[UUID],
    after: UUID | None,
    limit: int,
) -> list[UUID]:
    """Return the first distinct values of an indexed column.

    DISTINCT would read every waiting window. This reads one index entry a value, by the recursive
    query that stands in for a loose index scan on both databases.
    Source: https://wiki.postgresql.org/wiki/Loose_indexscan
    """
    start = select(column).where(waiting).order_by(column).limit(1)
    if after is not None:
        start = start.where(column > after)
    found = select(start.scalar_subquery().label("value"), literal(1, Integer).label("n")).cte(
        "found", recursive=True
    )
    following = (
        select(column).where(waiting, column > found.c.value).order_by(column).limit(1)
    ).scalar_subquery()
    found = found.union_all(
        select(following, found.c.n + 1).where(found.c.value.is_not(None), found.c.n < limit)
    )
    return list(session.scalars(select(found.c.value).where(found.c.value.is_not(None))))


def _claimable(adapter: str, model: str) -> ColumnElement[bool]:
    return and_(
        Window.adapter == adapter,
        Window.model == model,
        Window.status == WindowStatus.PENDING,
        Window.is_claimable.is_(True),
    )


def _next_priority(adapter: str, model: str, *, after: int | None) -> Select[int]:
    statement = select(Window.priority).where(_claimable(adapter, model))
    if after is not None:
        statement = statement.where(Window.priority > after)
    return statement.order_by(Window.priority).limit(1)
