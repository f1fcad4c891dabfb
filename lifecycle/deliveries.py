"""Deliveries are created in the transaction that makes their event true."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import bindparam, delete, select
from sqlalchemy.orm import Session, joinedload

from core.db import UnitOfWork
from core.events import JobEvent, Publisher
from core.ids import new_id
from core.outbound import origin
from lifecycle.conflict import insert_or_ignore
from lifecycle.views import JobView
from models import Job
from models.delivery import DIRECT, Delivery, DeliveryStatus
from models.webhook import WebhookEndpoint

TEST_EVENT = "webhook.test"
BATCH_COMPLETED = "batch.completed"
KEPT_FOR = timedelta(days=30)
"""How long the log of a delivery is kept after its end."""

_ENDPOINTS = select(WebhookEndpoint).where(
    WebhookEndpoint.key_id == bindparam("key_id"), WebhookEndpoint.disabled_at.is_(None)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Something webhooks tell of.

    Attributes:
        subject_id: The job, batch or endpoint it is about.
        number: Tells apart events of one type about one subject: a job can fail, be retried and
            fail again. The same number again is the same event.
        data: What `GET` on the subject answers.
    """

    event_type: str
    subject_id: UUID
    number: int
    key_id: UUID
    data: dict[str, Any]
    at: datetime

    @property
    def event_id(self) -> UUID:
        """The same for the same event, whoever computes it and however often."""
        return uuid5(self.subject_id, f"{self.event_type}/{self.number}")

    def body(self) -> bytes:
        """Return the payload: the bytes that are stored, signed and sent."""
        payload = {"type": self.event_type, "timestamp": self.at.isoformat(), "data": self.data}
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a delivery goes; `endpoint_id` is None for the URL that came with the subject."""

    url: str
    endpoint_id: UUID | None = None
    secret: str | None = None
    not_before: datetime | None = None


def create_deliveries(
    uow: UnitOfWork,
    publisher: Publisher,
    occasion: Occasion,
    *,
    url: str | None = None,
    secret: str | None = None,
) -> int:
    """Record a delivery to `url` and to every endpoint of the key that wants the event.

    Call it in the transaction of the change: they are durable together or not at all. Doing it
    twice creates nothing new.

    Returns:
        How many deliveries were created.
    """
    targets = _list_targets(
        uow.session, occasion.key_id, occasion.event_type, url=url, secret=secret
    )
    return sum(deliver_to(uow, publisher, occasion, target) for target in targets)


def announce_end(uow: UnitOfWork, publisher: Publisher, job: Job, event: JobEvent) -> None:
    """Tell webhooks that a job ended; `record_event` calls it with a job's last event."""
    targets = _list_targets(
        uow.session, job.key_id, event.type, url=job.webhook_url, secret=job.webhook_secret
    )
    if not targets:
        return
    # The view shows the media, which few transactions have loaded.
    uow.session.scalars(select(Job).where(Job.id == job.id).options(joinedload(Job.media))).one()
    occasion = Occasion(
        event_type=event.type,
        subject_id=job.id,
        number=event.seq,
        key_id=job.key_id,
        data=JobView.of(job).model_dump(mode="json"),
        at=event.created_at,
    )
    for target in targets:
        deliver_to(uow, publisher, occasion, target)


def deliver_to(uow: UnitOfWork, publisher: Publisher, occasion: Occasion, target: Target) -> bool:
    """Record one delivery; return False if this event already has one to that target."""
    created = insert_or_ignore(
        uow.session,
        Delivery,
        {
            "id": new_id(),
            "key_id": occasion.key_id,
            "event_id": occasion.event_id,
            "event_type": occasion.event_type,
            "subject_id": occasion.subject_id,
            "endpoint_id": target.endpoint_id,
            "target_key": str(target.endpoint_id or DIRECT),
            "target_host": origin(target.url),
            "url": target.url,
            "secret": target.secret,
            "body": occasion.body(),
            "status": DeliveryStatus.PENDING,
            "attempt": 0,
            "step": 0,
            "next_attempt_at": max(occasion.at, target.not_before or occasion.at),
            "created_at": occasion.at,
        },
    )
    if created and publisher.deliveries_due not in uow.effects:
        uow.after_commit(publisher.deliveries_due)
    return created


def forget_deliveries(session: Session, subject_ids: list[UUID], *, keep_unsent: bool) -> None:
    """Remove deliveries about deleted subjects.

    Args:
        keep_unsent: Leave those that still have attempts to come: the end of a retention must not
            swallow an event that a receiver has not had. An explicit deletion takes all.
    """
    statement = delete(Delivery).where(Delivery.subject_id.in_(subject_ids))
    if keep_unsent:
        statement = statement.where(
            Delivery.status.in_(
                (DeliveryStatus.DELIVERED, DeliveryStatus.FAILED, DeliveryStatus.CANCELLED)
            )
        )
    session.execute(statement, execution_options={"synchronize_session": False})


def expire_deliveries(session: Session, *, now: datetime) -> None:
    """Remove the log of what ended long ago."""
    session.execute(
        delete(Delivery)
        .where(Delivery.finished_at < now - KEPT_FOR)
        .execution_options(synchronize_session=False)
    )


def _list_targets(
    session: Session, key_id: UUID, event_type: str, *, url: str | None, secret: str | None
) -> list[Target]:
    """Return the key's endpoints that want the event, and `url` if there is one."""
    with session.no_autoflush:  # what this transaction changes are no endpoints
        endpoints = session.scalars(_ENDPOINTS, {"key_id": key_id}).all()
    targets = [
        Target(url=endpoint.url, endpoint_id=endpoint.id, not_before=endpoint.paused_until)
        for endpoint in endpoints
        if endpoint.wants(event_type)
    ]
    return targets if url is None else [*targets, Target(url=url, secret=secret)]
