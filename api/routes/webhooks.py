"""Webhook endpoints, their secrets, and the log of deliveries."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response, status

from api import webhooks
from api.deps import Context, Reader, Reading, Submitter, Uow, now
from api.idempotency import IdempotencyKey, OnceFor, create_once, parse_once
from api.ids import parse_cursor, parse_id
from api.webhooks import (
    CreatedEndpoint,
    DeliveryDetail,
    DeliveryPage,
    DeliveryView,
    EndpointChange,
    EndpointCreation,
    EndpointList,
    EndpointView,
    Rotation,
    SecretView,
)
from core.signing import check_secret, new_secret
from lifecycle.attempts import replay
from lifecycle.endpoints import rotate_secret
from lifecycle.owned import get_owned
from models import ApiKey, WebhookEndpoint
from models.delivery import Delivery

router = APIRouter(prefix="/v1", tags=["webhooks"])


@router.post("/webhooks", status_code=status.HTTP_201_CREATED)
def create_endpoint(  # noqa: PLR0917 - FastAPI passes them by name
    request: Request,
    response: Response,
    uow: Uow,
    context: Context,
    caller: Submitter,
    creation: EndpointCreation,
    idempotency_key: IdempotencyKey = None,
) -> CreatedEndpoint:
    """Add an endpoint. The answer holds its secret; it is not shown again."""
    at = now()

    def make() -> tuple[UUID, CreatedEndpoint]:
        endpoint = webhooks.create_endpoint(
            uow, context.settings, creation, key_id=caller.key_id, now=at
        )
        view = EndpointView.of(endpoint, now=at)
        return endpoint.id, CreatedEndpoint(**view.model_dump(), secret=endpoint.secret)

    view = create_once(
        uow,
        parse_once(request, caller, idempotency_key, creation.model_dump()),
        make,
        status=status.HTTP_201_CREATED,
        location=_location,
    )
    response.headers["Location"] = _location(view.id)
    return view


def _location(endpoint_id: UUID) -> str:
    return f"/v1/webhooks/{endpoint_id}"


@router.get("/webhooks")
def list_endpoints(session: Reading, caller: Reader) -> EndpointList:
    """List the endpoints of this key, oldest first."""
    rows = session.query(WebhookEndpoint).filter_by(key_id=caller.key_id)
    at = now()
    ordered = rows.order_by(WebhookEndpoint.id)
    return EndpointList(data=[EndpointView.of(row, now=at) for row in ordered])


@router.post("/webhooks/signing-secret")
def renew_signing_secret(uow: Uow, caller: Submitter, once_for: OnceFor) -> SecretView:
    """Make a new secret for webhooks of jobs that bring a `webhook_url` but no `webhook_secret`.

    It signs from now on; the answer shows it this once.
    """

    def make() -> tuple[UUID, SecretView]:
        key = uow.session.get_one(ApiKey, caller.key_id, with_for_update=True)
        key.webhook_secret = new_secret()
        return key.id, SecretView(secret=key.webhook_secret)

    return create_once(uow, once_for({}), make, status=status.HTTP_200_OK)


@router.get("/webhooks/{endpoint_id}")
def get_endpoint(session: Reading, caller: Reader, endpoint_id: str) -> EndpointView:
    """Show one endpoint."""
    key = parse_id(endpoint_id, "webhook endpoint")
    endpoint = get_owned(session, WebhookEndpoint, key, key_id=caller.key_id)
    return EndpointView.of(endpoint, now=now())


@router.patch("/webhooks/{endpoint_id}")
def change_endpoint(
    uow: Uow, context: Context, caller: Submitter, endpoint_id: str, change: EndpointChange
) -> EndpointView:
    """Change, disable or enable an endpoint."""
    key = parse_id(endpoint_id, "webhook endpoint")
    endpoint = get_owned(uow.session, WebhookEndpoint, key, key_id=caller.key_id, lock=True)
    at = now()
    webhooks.change_endpoint(uow, context.settings, endpoint, change, now=at)
    return EndpointView.of(endpoint, now=at)


@router.delete("/webhooks/{endpoint_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_endpoint(uow: Uow, caller: Submitter, endpoint_id: str) -> None:
    """Delete an endpoint; what waits for it is cancelled."""
    key = parse_id(endpoint_id, "webhook endpoint")
    endpoint = get_owned(uow.session, WebhookEndpoint, key, key_id=caller.key_id, lock=True)
    webhooks.remove_endpoint(uow, endpoint, now=now())


@router.post("/webhooks/{endpoint_id}/test", status_code=status.HTTP_202_ACCEPTED)
def test_endpoint(
    uow: Uow, context: Context, caller: Submitter, once_for: OnceFor, endpoint_id: str
) -> DeliveryView:
    """Send a `webhook.test` event; its delivery tells how it went."""
    key = parse_id(endpoint_id, "webhook endpoint")

    def make() -> tuple[UUID, DeliveryView]:
        endpoint = get_owned(uow.session, WebhookEndpoint, key, key_id=caller.key_id, lock=True)
        delivery = webhooks.send_test(uow, context.publisher, endpoint, now=now())
        return delivery.id, DeliveryView.of(delivery)

    once = once_for({"endpoint_id": str(key)})
    return create_once(uow, once, make, status=status.HTTP_202_ACCEPTED)


@router.post("/webhooks/{endpoint_id}/rotate")
def rotate(
    uow: Uow,
    caller: Submitter,
    once_for: OnceFor,
    endpoint_id: str,
    rotation: Rotation | None = None,
) -> SecretView:
    """Replace the secret. For 24 hours both sign, so that the receiver can change over."""
    key = parse_id(endpoint_id, "webhook endpoint")
    given = rotation.secret if rotation is not None else None

    def make() -> tuple[UUID, SecretView]:
        endpoint = get_owned(uow.session, WebhookEndpoint, key, key_id=caller.key_id, lock=True)
        secret = check_secret(given, param="secret") if given is not None else new_secret()
        rotate_secret(endpoint, secret=secret, now=now())
        expires_at = endpoint.previous_secret_expires_at
        return key, SecretView(secret=secret, previous_secret_expires_at=expires_at)

    once = once_for({"endpoint_id": str(key), "secret": given})
    return create_once(uow, once, make, status=status.HTTP_200_OK)


@router.get("/deliveries")
def list_deliveries(  # noqa: PLR0917 - FastAPI passes them by name
    session: Reading,
    caller: Reader,
    status: str | None = None,
    job_id: str | None = None,
    batch_id: str | None = None,
    endpoint_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: str | None = None,
) -> DeliveryPage:
    """List deliveries, newest first."""
    subject = job_id or batch_id
    return webhooks.list_deliveries(
        session,
        key_id=caller.key_id,
        status=webhooks.parse_status(status),
        subject_id=parse_id(subject, "job or batch") if subject else None,
        endpoint_id=parse_id(endpoint_id, "webhook endpoint") if endpoint_id else None,
        before=parse_cursor(cursor),
        limit=limit,
    )


@router.get("/deliveries/{delivery_id}")
def get_delivery(session: Reading, caller: Reader, delivery_id: str) -> DeliveryDetail:
    """Show a delivery with its payload and every attempt."""
    key = parse_id(delivery_id, "delivery")
    delivery = get_owned(session, Delivery, key, key_id=caller.key_id)
    return webhooks.describe_delivery(session, delivery)


@router.post("/deliveries/{delivery_id}/replay", status_code=status.HTTP_202_ACCEPTED)
def replay_delivery(
    uow: Uow, context: Context, caller: Submitter, once_for: OnceFor, delivery_id: str
) -> DeliveryView:
    """Send it again, under the same `webhook-id`, from the start of the schedule."""
    key = parse_id(delivery_id, "delivery")

    def make() -> tuple[UUID, DeliveryView]:
        delivery = get_owned(uow.session, Delivery, key, key_id=caller.key_id)
        uow.session.refresh(delivery, with_for_update=True)
        replay(uow.session, delivery, now=now())
        uow.after_commit(context.publisher.deliveries_due)
        return delivery.id, DeliveryView.of(delivery)

    once = once_for({"delivery_id": str(key)})
    return create_once(uow, once, make, status=status.HTTP_202_ACCEPTED)
