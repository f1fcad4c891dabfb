"""Webhook endpoints and deliveries as callers see and change them."""

from datetime import datetime
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.errors import Conflict, InvalidOption
from core.events import Publisher
from core.outbound import check_url
from core.settings import Settings
from core.signing import check_secret, new_secret
from lifecycle.deliveries import TEST_EVENT, Occasion, Target, deliver_to
from lifecycle.endpoints import disable_endpoint, enable_endpoint, endpoint_answered
from models import Delivery, DeliveryAttempt, DeliveryStatus, WebhookEndpoint

MAX_ENDPOINTS = 20
"""An event is copied to each endpoint of its key, so there must be an end to them."""

EventName = Literal["*", "job.completed", "job.failed", "job.cancelled", "batch.completed"]
Url = Annotated[str, StringConstraints(max_length=2048)]


class EndpointCreation(BaseModel):
    """A new endpoint."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"url": "https://example.com/scriptorium"}]},
    )

    url: Url
    events: list[EventName] = Field(default=["*"], min_length=1, max_length=5)
    description: str | None = Field(default=None, max_length=1000)
    secret: str | None = Field(
        default=None, max_length=200, description="`whsec_…`; made here if absent."
    )


class EndpointChange(BaseModel):
    """What to change; absent fields stay."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"disabled": False}]})

    url: Url | None = None
    events: list[EventName] | None = Field(default=None, min_length=1, max_length=5)
    description: str | None = Field(default=None, max_length=1000)
    disabled: bool | None = Field(default=None, description="False also ends a pause.")


class Rotation(BaseModel):
    """A new secret for an endpoint."""

    model_config = ConfigDict(extra="forbid")

    secret: str | None = Field(default=None, max_length=200)


class SecretView(BaseModel):
    """A secret, shown this once."""

    secret: str
    previous_secret_expires_at: datetime | None = Field(
        default=None, description="Until when the old secret signs beside the new one."
    )


class EndpointView(BaseModel):
    """An endpoint, without its secret."""

    id: UUID
    url: str
    events: list[str]
    description: str | None
    status: Literal["active", "paused", "disabled"]
    disabled_reason: str | None
    paused_until: datetime | None
    failures: int = Field(description="Failed attempts in a row.")
    created_at: datetime

    @classmethod
    def of(cls, endpoint: WebhookEndpoint, *, now: datetime) -> Self:
        """Return the view."""
        status: Literal["active", "paused", "disabled"] = (
            "active" if endpoint.is_open(now) else "paused"
        )
        if endpoint.disabled_at is not None:
            status = "disabled"
        return cls(
            id=endpoint.id,
            url=endpoint.url,
            events=endpoint.events,
            description=endpoint.description,
            status=status,
            disabled_reason=endpoint.disabled_reason,
            paused_until=endpoint.paused_until,
            failures=endpoint.failures,
            created_at=endpoint.created_at,
        )


class CreatedEndpoint(EndpointView):
    """A new endpoint with its secret, shown this once."""

    secret: str


class EndpointList(BaseModel):
    """All endpoints of a key."""

    data: list[EndpointView]


class AttemptView(BaseModel):
    """One attempt of a delivery."""

    number: int
    started_at: datetime
    duration_ms: int
    response_status: int | None
    response_body: str | None
    error: str | None


class DeliveryView(BaseModel):
    """An event on its way to one target."""

    id: UUID
    webhook_id: str = Field(description="The `webhook-id` header: the same over all attempts.")
    event_type: str
    subject_id: UUID = Field(description="The job, batch or endpoint it is about.")
    endpoint_id: UUID | None
    url: str
    status: DeliveryStatus
    attempts: int
    next_attempt_at: datetime | None
    last_status: int | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        """Return the view."""
        return cls(
            id=delivery.id,
            webhook_id=f"evt_{delivery.event_id.hex}",
            event_type=delivery.event_type,
            subject_id=delivery.subject_id,
            endpoint_id=delivery.endpoint_id,
            url=delivery.url,
            status=DeliveryStatus(delivery.status),
            attempts=delivery.attempt,
            next_attempt_at=delivery.next_attempt_at,
            last_status=delivery.last_status,
            last_error=delivery.last_error,
            created_at=delivery.created_at,
            finished_at=delivery.finished_at,
        )


class DeliveryDetail(DeliveryView):
    """A delivery with the log of its attempts, oldest first, and its payload."""

    attempt_log: list[AttemptView]
    payload: str


class DeliveryPage(BaseModel):
    """Deliveries, newest first."""

    data: list[DeliveryView]
    next_cursor: str | None


def create_endpoint(
    uow: UnitOfWork, settings: Settings, creation: EndpointCreation, *, key_id: UUID, now: datetime
) -> WebhookEndpoint:
    """Add an endpoint.

    Raises:
        InvalidOption: The URL or the secret cannot be used.
        Conflict: The key has too many already.
    """
    check_url(creation.url, allow_private=settings.webhook_allow_private, param="url")
    if creation.secret is not None:
        check_secret(creation.secret, param="secret")
    count = uow.session.scalar(select(func.count()).where(WebhookEndpoint.key_id == key_id))
    if (count or 0) >= MAX_ENDPOINTS:
        raise Conflict(f"A key has at most {MAX_ENDPOINTS} endpoints.")
    endpoint = WebhookEndpoint(
        key_id=key_id,
        url=creation.url,
        events=list(creation.events),
        description=creation.description,
        secret=creation.secret or new_secret(),
        failures=0,
        created_at=now,
    )
    uow.session.add(endpoint)
    uow.session.flush()
    return endpoint


def change_endpoint(
    uow: UnitOfWork,
    settings: Settings,
    endpoint: WebhookEndpoint,
    change: EndpointChange,
    *,
    now: datetime,
) -> None:
    """Apply `change`.

    Raises:
        InvalidOption: The URL cannot be used.
    """
    if change.url is not None and change.url != endpoint.url:
        check_url(change.url, allow_private=settings.webhook_allow_private, param="url")
        endpoint.url = change.url
        endpoint_answered(endpoint)  # the failures were another place's
    if change.events is not None:
        endpoint.events = list(change.events)
    if change.description is not None:
        endpoint.description = change.description
    if change.disabled is True and endpoint.disabled_at is None:
        disable_endpoint(uow.session, endpoint, reason="by_owner", now=now)
    elif change.disabled is False:
        enable_endpoint(endpoint)


def remove_endpoint(uow: UnitOfWork, endpoint: WebhookEndpoint, *, now: datetime) -> None:
    """Delete an endpoint; what waits for it is cancelled, the log of its deliveries stays."""
    uow.session.execute(
        update(Delivery)
        .where(Delivery.endpoint_id == endpoint.id, Delivery.status == DeliveryStatus.PENDING)
        .values(status=DeliveryStatus.CANCELLED, next_attempt_at=None, finished_at=now)
        .execution_options(synchronize_session=False)
    )
    uow.session.execute(delete(WebhookEndpoint).where(WebhookEndpoint.id == endpoint.id))


def send_test(
    uow: UnitOfWork, publisher: Publisher, endpoint: WebhookEndpoint, *, now: datetime
) -> Delivery:
    """Deliver a `webhook.test` event.

    Raises:
        Conflict: The endpoint is disabled.
    """
    if endpoint.disabled_at is not None:
        raise Conflict("The endpoint is disabled; enable it first.")
    occasion = Occasion(
        event_type=TEST_EVENT,
        subject_id=endpoint.id,
        number=int(now.timestamp() * 1_000_000),
        key_id=endpoint.key_id,
        data={"endpoint_id": str(endpoint.id)},
        at=now,
    )
    deliver_to(uow, publisher, occasion, Target(url=endpoint.url, endpoint_id=endpoint.id))
    return uow.session.scalars(select(Delivery).where(Delivery.event_id == occasion.event_id)).one()


def describe_delivery(session: Session, delivery: Delivery) -> DeliveryDetail:
    """Return the delivery with its log."""
    attempts = session.scalars(
        select(DeliveryAttempt)
        .where(DeliveryAttempt.delivery_id == delivery.id)
        .order_by(DeliveryAttempt.number)
    )
    return DeliveryDetail(
        **DeliveryView.of(delivery).model_dump(),
        attempt_log=[AttemptView.model_validate(a, from_attributes=True) for a in attempts],
        payload=delivery.body.decode(),
    )


def list_deliveries(
    session: Session,
    *,
    key_id: UUID,
    status: DeliveryStatus | None,
    subject_id: UUID | None,
    endpoint_id: UUID | None,
    before: UUID | None,
    limit: int,
) -> DeliveryPage:
    """Return a page, newest first; ids are ordered by time."""
    statement = select(Delivery).where(Delivery.key_id == key_id)
    for column, wanted in (
        (Delivery.status, status),
        (Delivery.subject_id, subject_id),
        (Delivery.endpoint_id, endpoint_id),
    ):
        if wanted is not None:
            statement = statement.where(column == wanted)
    if before is not None:
        statement = statement.where(Delivery.id < before)
    rows = session.scalars(statement.order_by(Delivery.id.desc()).limit(limit + 1)).all()
    page = rows[:limit]
    has_more = len(rows) > limit
    return DeliveryPage(
        data=[DeliveryView.of(row) for row in page],
        next_cursor=str(page[-1].id) if has_more else None,
    )


def parse_status(text: str | None) -> DeliveryStatus | None:
    """Return the status a list is filtered by.

    Raises:
        InvalidOption: There is no such status.
    """
    if text is None:
        return None
    try:
        return DeliveryStatus(text)
    except ValueError as exc:
        known = ", ".join(DeliveryStatus)
        raise InvalidOption(f"status: one of {known}", param="status") from exc
