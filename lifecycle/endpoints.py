"""What becomes of a webhook endpoint: its secrets, and what its failures lead to."""

from datetime import datetime, timedelta

import structlog
from sqlalchemy import update
from sqlalchemy.orm import Session

from core.signing import new_secret
from models import ApiKey
from models.delivery import Delivery, DeliveryStatus
from models.webhook import WebhookEndpoint

log = structlog.get_logger(__name__)

PAUSE_AFTER_FAILURES = 5
FIRST_PAUSE = timedelta(minutes=5)
LONGEST_PAUSE = timedelta(hours=6)
UNREACHABLE_AFTER = timedelta(days=5)
ROTATION_OVERLAP = timedelta(hours=24)


def rotate_secret(endpoint: WebhookEndpoint, *, secret: str, now: datetime) -> None:
    """Sign with `secret` from now on, and beside it with the old one for `ROTATION_OVERLAP`."""
    endpoint.previous_secret = endpoint.secret
    endpoint.previous_secret_expires_at = now + ROTATION_OVERLAP
    endpoint.secret = secret


def secrets_of(session: Session, delivery: Delivery, *, now: datetime) -> tuple[str, ...]:
    """Return what signs the next attempt, newest first.

    The endpoint's secret counts as of now, not as of the event. A key without a secret gets one
    at its first delivery; `POST /v1/webhooks/signing-secret` replaces and shows it.
    """
    if delivery.secret is not None:
        return (delivery.secret,)
    if delivery.endpoint_id is not None:
        endpoint = session.get_one(WebhookEndpoint, delivery.endpoint_id)
        if endpoint.previous_secret_expires_at is not None and (
            endpoint.previous_secret_expires_at > now
        ):
            return (endpoint.secret, endpoint.previous_secret or endpoint.secret)
        return (endpoint.secret,)
    key = session.get_one(ApiKey, delivery.key_id)
    if key.webhook_secret is None:
        key.webhook_secret = new_secret()
    return (key.webhook_secret,)


def endpoint_answered(endpoint: WebhookEndpoint) -> None:
    """Forget earlier failures: it is alive."""
    endpoint.failures = 0
    endpoint.failing_since = None
    endpoint.paused_until = None


def endpoint_failed(
    session: Session, endpoint: WebhookEndpoint, *, is_gone: bool, now: datetime
) -> None:
    """Count a failure; pause the endpoint after some in a row, disable it when it is hopeless.

    Attempts that were in flight when the pause began make it no longer: one outage is one pause.
    """
    if not is_gone and endpoint.paused_until is not None and endpoint.paused_until > now:
        return
    endpoint.failures += 1
    endpoint.failing_since = endpoint.failing_since or now
    if is_gone:
        disable_endpoint(session, endpoint, reason="gone", now=now)
    elif now - endpoint.failing_since > UNREACHABLE_AFTER:
        disable_endpoint(session, endpoint, reason="unreachable", now=now)
    elif endpoint.failures >= PAUSE_AFTER_FAILURES:
        _pause(session, endpoint, now)


def disable_endpoint(
    session: Session, endpoint: WebhookEndpoint, *, reason: str, now: datetime
) -> None:
    """Send nothing more there; what waits is cancelled and can be replayed later."""
    endpoint.disabled_at = now
    endpoint.disabled_reason = reason
    log.warning("endpoint.disabled", endpoint_id=str(endpoint.id), reason=reason)
    session.flush()
    session.execute(
        update(Delivery)
        .where(Delivery.endpoint_id == endpoint.id, Delivery.status == DeliveryStatus.PENDING)
        .values(status=DeliveryStatus.CANCELLED, next_attempt_at=None, finished_at=now)
        .execution_options(synchronize_session="fetch")
    )


def enable_endpoint(endpoint: WebhookEndpoint) -> None:
    """Take it into service again, without a memory of its failures."""
    endpoint.disabled_at = None
    endpoint.disabled_reason = None
    endpoint_answered(endpoint)


def _pause(session: Session, endpoint: WebhookEndpoint, now: datetime) -> None:
    doublings = min(endpoint.failures - PAUSE_AFTER_FAILURES, 16)
    until = now + min(FIRST_PAUSE * 2**doublings, LONGEST_PAUSE)
    endpoint.paused_until = until
    log.warning("endpoint.paused", endpoint_id=str(endpoint.id), failures=endpoint.failures)
    session.flush()
    session.execute(
        update(Delivery)
        .where(
            Delivery.endpoint_id == endpoint.id,
            Delivery.status == DeliveryStatus.PENDING,
            Delivery.next_attempt_at < until,
        )
        .values(next_attempt_at=until)
        .execution_options(synchronize_session="fetch")
    )
