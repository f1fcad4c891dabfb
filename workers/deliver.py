"""Signs and posts webhooks, many at once, so that a slow receiver holds up nobody but itself."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import structlog
from sqlalchemy.orm import Session, sessionmaker
from ssrfguard import SSRFGuardError

from core.db import unit_of_work
from core.outbound import Resolver, open_async_client, read_retry_after
from core.settings import Settings
from core.signing import signed_headers
from lifecycle.attempts import Answer, Claim, claim_due, parse_schedule, release_expired, settle

log = structlog.get_logger(__name__)

KEPT_BODY_BYTES = 1024
LEASE_MARGIN = timedelta(seconds=45)
"""A lease outlives the attempt's own limit by this: name look-ups cannot be interrupted."""

LOOK_AGAIN_S = 0.5
"""How often new work is looked for while attempts are in flight."""

USER_AGENT = "Scriptorium-Webhooks/1"


class Deliverer:
    """Makes due attempts until none is due or its time is over.

    Args:
        resolver: Stand-in for `socket.getaddrinfo`.
    """

    def __init__(
        self,
        sessions: sessionmaker[Session],
        settings: Settings,
        *,
        resolver: Resolver | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._sessions = sessions
        self._settings = settings
        self._schedule_s = parse_schedule(settings.webhook_retry_s)
        self._resolver = resolver
        self._now = now

    def run(self, *, slice_s: float = 20.0) -> int:
        """Return how many attempts were made; new ones start for at most `slice_s`."""
        with unit_of_work(self._sessions) as uow:
            num_lost = release_expired(uow.session, schedule_s=self._schedule_s, now=self._now())
        if num_lost:
            log.warning("deliveries.expired", num_deliveries=num_lost)
        return asyncio.run(self._run(time.monotonic() + slice_s))

    async def _run(self, deadline: float) -> int:
        num_attempts = 0
        in_flight: set[asyncio.Task[None]] = set()
        async with open_async_client(
            allow_private=self._settings.webhook_allow_private,
            timeout_s=self._settings.webhook_timeout_s,
            connections=self._settings.webhook_concurrency,
            resolver=self._resolver,
        ) as client:
            while True:
                free = self._settings.webhook_concurrency - len(in_flight)
                if free and time.monotonic() < deadline:
                    claims = await asyncio.to_thread(self._claim, free)
                    num_attempts += len(claims)
                    in_flight |= {asyncio.create_task(self._attempt(client, c)) for c in claims}
                if not in_flight:
                    return num_attempts
                done, in_flight = await asyncio.wait(
                    in_flight, timeout=LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()

    def _claim(self, limit: int) -> list[Claim]:
        lease = timedelta(seconds=self._settings.webhook_timeout_s) + LEASE_MARGIN
        with unit_of_work(self._sessions) as uow:
            return claim_due(uow.session, limit=limit, lease=lease, now=self._now())

    async def _attempt(self, client: httpx.AsyncClient, claim: Claim) -> None:
        answer = await self._post(client, claim)
        status = await asyncio.to_thread(self._settle, claim, answer)
        log.info(
            "delivery.attempted",
            delivery_id=str(claim.delivery_id),
            attempt=claim.attempt,
            event_type=claim.event_type,
            response_status=answer.status,
            duration_ms=answer.duration_ms,
            error=answer.error,
            status=status,
        )

    def _settle(self, claim: Claim, answer: Answer) -> str | None:
        with unit_of_work(self._sessions) as uow:
            return settle(uow.session, claim, answer, schedule_s=self._schedule_s, now=self._now())

    async def _post(self, client: httpx.AsyncClient, claim: Claim) -> Answer:
        started_at, started = self._now(), time.monotonic()
        status: int | None = None
        body, error, retry_after_s = "", None, None
        try:
            # One limit on the whole attempt: a receiver that drips bytes must not renew it.
            async with asyncio.timeout(self._settings.webhook_timeout_s):
                async with client.stream(
                    "POST",
                    claim.url,
                    content=claim.body,
                    headers=self._headers(claim, started_at),
                ) as response:
                    status = response.status_code
                    retry_after_s = read_retry_after(response.headers, started_at)
                    body = await _first_bytes(response)
        except TimeoutError:
            error = "timeout"
        except SSRFGuardError:
            error = "address_not_allowed"
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as exc:
            error = f"connection_failed: {type(exc).__name__}"
        if status is not None:  # the answer counts from its first line on, whatever its body does
            error = None if 200 <= status < 300 else f"http_{status}"
        return Answer(
            started_at=started_at,
            duration_ms=int((time.monotonic() - started) * 1000),
            status=status,
            body=body or None,
            error=error,
            retry_after_s=retry_after_s,
        )

    def _headers(self, claim: Claim, at: datetime) -> dict[str, str]:
        return {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "accept-encoding": "identity",
            **signed_headers(claim.secrets, event_id=claim.event_id, body=claim.body, at=at),
        }


async def _first_bytes(response: httpx.Response) -> str:
    """Return the start of the answer; the rest is never read."""
    kept = b""
    async for chunk in response.aiter_raw(KEPT_BODY_BYTES):
        kept += chunk
        if len(kept) >= KEPT_BODY_BYTES:
            break
    return kept[:KEPT_BODY_BYTES].decode(errors="replace").replace("\x00", "\ufffd")
