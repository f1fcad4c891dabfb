"""Requests a minute, counted in Redis for all API processes together."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

import structlog
from redis import Redis
from redis.exceptions import RedisError

from core.errors import LimitExceeded

log = structlog.get_logger(__name__)

WINDOW_S = 60


class RequestLimiter(Protocol):
    """Counts requests of a key."""

    def count(self, key_id: UUID, *, now: datetime) -> int:
        """Return how many requests of the present minute there are, with this one."""
        ...


class RedisLimiter:
    """Fixed windows of a minute; without Redis nobody is refused."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def count(self, key_id: UUID, *, now: datetime) -> int:
        """See `RequestLimiter`."""
        name = f"limits:{key_id}:{int(now.timestamp()) // WINDOW_S}"
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.incr(name)
                pipeline.expire(name, 2 * WINDOW_S)
                return int(pipeline.execute()[0])
        except RedisError as exc:
            log.warning("limit.unchecked", error=str(exc))
            return 0


class NoLimiter:
    """Counts nothing."""

    def count(self, _key_id: UUID, *, now: datetime) -> int:  # noqa: ARG002
        """See `RequestLimiter`."""
        return 0


def admit(
    limiter: RequestLimiter, key_id: UUID, limit: int | None, *, now: datetime
) -> dict[str, int]:
    """Count a request; return the numbers for its answer's `X-RateLimit-…` headers.

    Raises:
        LimitExceeded: The minute's requests are used up.
    """
    if limit is None:
        return {}
    used = limiter.count(key_id, now=now)
    reset_s = WINDOW_S - int(now.timestamp()) % WINDOW_S
    numbers = {
        "limit-requests": limit,
        "remaining-requests": max(0, limit - used),
        "reset-requests": reset_s,
    }
    if used > limit:
        raise LimitExceeded(
            f"This key may send {limit} requests a minute.",
            retry_after_s=reset_s,
            numbers=numbers,
        )
    return numbers
