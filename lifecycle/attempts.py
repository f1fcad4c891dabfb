"""The life of a delivery between its creation and its end: claims, answers, retries.

Claims work as for windows: a compare-and-set with a lease, and every later write is fenced by the
number of the attempt.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.errors import Conflict
from lifecycle.endpoints import endpoint_answered, endpoint_failed, secrets_of
from models.delivery import DIRECT, Delivery, DeliveryAttempt, DeliveryStatus
from models.webhook import WebhookEndpoint

log = structlog.get_logger(__name__)

MAX_PER_HOST = 4
"""Attempts in flight at once to one host: a slow receiver holds no more places than that."""

MAX_RETRY_AFTER = timedelta(hours=24)
JITTER = 0.2
GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One attempt that this process may make until its lease ends.

    Attributes:
        secrets: Newest first; two while an endpoint's secret rotates.
    """

    delivery_id: UUID
    attempt: int
    event_id: str
    event_type: str
    url: str
    body: bytes
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How an attempt went.

    Attributes:
        error: None if it counts as delivered.
        retry_after_s: What the receiver asked for, if it did.
    """

    started_at: datetime
    duration_ms: int
    status: int | None = None
    body: str | None = None
    error: str | None = None
    retry_after_s: float | None = None


def claim_due(session: Session, *, limit: int, lease: timedelta, now: datetime) -> list[Claim]:
    """Take up to `limit` due deliveries, no more than `MAX_PER_HOST` in flight to one host.

    SKIP LOCKED makes a claim wait for nobody; SQLite serialises whole transactions instead.
    """
    claimed = session.scalars(
        select(Delivery)
        .where(Delivery.id.in_(_due_ids(session, limit, now)))
        .where(Delivery.status == DeliveryStatus.PENDING)
        .with_for_update(skip_locked=True)
        .execution_options(populate_existing=True)
    ).all()
    for delivery in claimed:
        delivery.claim(until=now + lease)
    return [_claim(session, delivery, now) for delivery in claimed]


def settle(
    session: Session,
    claim: Claim,
    answer: Answer,
    *,
    schedule_s: Sequence[float],
    now: datetime,
) -> DeliveryStatus | None:
    """Write down an attempt and decide what follows.

    Returns:
        The delivery's new status, or None if the attempt was no longer this process's.
    """
    delivery = session.get(
        Delivery, claim.delivery_id, with_for_update=True, populate_existing=True
    )
    if (
        delivery is None
        or delivery.attempt != claim.attempt
        or delivery.status != DeliveryStatus.RUNNING
    ):
        log.warning("delivery.abandoned", delivery_id=str(claim.delivery_id))
        return None
    _note(session, delivery, answer)
    endpoint = _locked_endpoint(session, delivery)
    if answer.error is None:
        delivery.move_to(DeliveryStatus.DELIVERED, now=now)
        if endpoint is not None:
            endpoint_answered(endpoint)
        return DeliveryStatus.DELIVERED
    if endpoint is not None:
        endpoint_failed(session, endpoint, is_gone=answer.status == GONE, now=now)
    _schedule_next(delivery, answer, schedule_s, now)
    if delivery.target_key != DIRECT and (endpoint is None or not endpoint.is_open(now)):
        _follow(delivery, endpoint, now)
    return DeliveryStatus(delivery.status)


def release_expired(session: Session, *, schedule_s: Sequence[float], now: datetime) -> int:
    """Put back deliveries whose worker went away in the middle of an attempt.

    The receiver may have got it; it recognises the repetition by the id.
    """
    expired = session.scalars(
        select(Delivery)
        .where(Delivery.status == DeliveryStatus.RUNNING, Delivery.lease_expires_at < now)
        .limit(1000)
        .with_for_update(skip_locked=True)
    ).all()
    for delivery in expired:
        lost = Answer(started_at=now, duration_ms=0, error="worker_lost")
        _note(session, delivery, lost)
        _schedule_next(delivery, lost, schedule_s, now)
    return len(expired)


def has_due(session: Session, *, now: datetime) -> bool:
    """Whether a worker should be woken."""
    return (
        session.scalar(
            select(Delivery.id)
            .where(Delivery.status == DeliveryStatus.PENDING, Delivery.next_attempt_at <= now)
            .limit(1)
        )
        is not None
    )


def replay(session: Session, delivery: Delivery, *, now: datetime) -> None:
    """Send it again from the start of the schedule, under the same event id.

    Raises:
        InvalidTransition: It is still being delivered.
        Conflict: Its endpoint was deleted, or is disabled.
    """
    endpoint = _locked_endpoint(session, delivery)
    if delivery.target_key != DIRECT and endpoint is None:
        raise Conflict("The endpoint of this delivery was deleted.")
    if endpoint is not None and endpoint.disabled_at is not None:
        raise Conflict("The endpoint of this delivery is disabled; enable it first.")
    delivery.move_to(DeliveryStatus.PENDING, now=now)
    delivery.step = 0


def parse_schedule(text: str) -> tuple[float, ...]:
    """Return the seconds before each attempt."""
    return tuple(float(part) for part in text.split(","))


def _due_ids(session: Session, limit: int, now: datetime) -> list[UUID]:
    running = (
        select(Delivery.target_host, func.count().label("num"))
        .where(Delivery.status == DeliveryStatus.RUNNING)
        .group_by(Delivery.target_host)
        .subquery()
    )
    due = (
        select(
            Delivery.id,
            Delivery.target_host,
            func.row_number()
            .over(partition_by=Delivery.target_host, order_by=Delivery.next_attempt_at)
            .label("place"),
        )
        .where(Delivery.status == DeliveryStatus.PENDING, Delivery.next_attempt_at <= now)
        .subquery()
    )
    return list(
        session.scalars(
            select(due.c.id)
            .outerjoin(running, running.c.target_host == due.c.target_host)
            .where(due.c.place + func.coalesce(running.c.num, 0) <= MAX_PER_HOST)
            .order_by(due.c.place)
            .limit(limit)
        )
    )


def _claim(session: Session, delivery: Delivery, now: datetime) -> Claim:
    return Claim(
        delivery_id=delivery.id,
        attempt=delivery.attempt,
        event_id=f"evt_{delivery.event_id.hex}",
        event_type=delivery.event_type,
        url=delivery.url,
        body=delivery.body,
        secrets=secrets_of(session, delivery, now=now),
    )


def _note(session: Session, delivery: Delivery, answer: Answer) -> None:
    delivery.last_status = answer.status
    delivery.last_error = answer.error
    session.add(
        DeliveryAttempt(
            delivery_id=delivery.id,
            number=delivery.attempt,
            started_at=answer.started_at,
            duration_ms=answer.duration_ms,
            response_status=answer.status,
            response_body=answer.body,
            error=answer.error,
        )
    )


def _schedule_next(
    delivery: Delivery, answer: Answer, schedule_s: Sequence[float], now: datetime
) -> None:
    step = delivery.step + 1
    if answer.status == GONE or step >= len(schedule_s):
        delivery.move_to(DeliveryStatus.FAILED, now=now)
        return
    delivery.step = step
    # Only ever later than the schedule says: receivers in trouble must not be met early.
    wait = timedelta(seconds=schedule_s[step] * (1 + JITTER * random.random()))  # noqa: S311
    if answer.retry_after_s is not None:
        wait = max(wait, min(timedelta(seconds=answer.retry_after_s), MAX_RETRY_AFTER))
    delivery.move_to(DeliveryStatus.PENDING, now=now, next_attempt_at=now + wait)


def _follow(delivery: Delivery, endpoint: WebhookEndpoint | None, now: datetime) -> None:
    """A delivery that is to be tried again shares the fate of its endpoint."""
    if delivery.status != DeliveryStatus.PENDING:
        return
    if endpoint is None or endpoint.disabled_at is not None:
        delivery.move_to(DeliveryStatus.CANCELLED, now=now)
    elif endpoint.paused_until is not None and delivery.next_attempt_at is not None:
        delivery.next_attempt_at = max(delivery.next_attempt_at, endpoint.paused_until)


def _locked_endpoint(session: Session, delivery: Delivery) -> WebhookEndpoint | None:
    if delivery.endpoint_id is None:
        return None
    return session.get(
        WebhookEndpoint, delivery.endpoint_id, with_for_update=True, populate_existing=True
    )
