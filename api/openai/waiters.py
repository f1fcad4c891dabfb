"""Requests that wait for one answer, counted over all API processes.

Repetitions under an `Idempotency-Key` wait for one job, and who leaves may cancel it only if
nobody else waits. Each request in Redis is valid for a while and is renewed while it waits, so
that a process that died holds no job.
"""

import asyncio
import time
from collections import defaultdict
from functools import partial

import anyio
import structlog
from redis import Redis
from redis.exceptions import RedisError

from core.ids import new_id
from lifecycle.idempotency import Once

log = structlog.get_logger(__name__)

LEASE_S = 30.0
RENEWALS_PER_LEASE = 3


class Waiters:
    """Counts those of this process by itself, and those of others in Redis, if there is one.

    While Redis does not answer, a process knows of its own waiters alone.
    """

    def __init__(self, redis: Redis | None = None, *, lease_s: float = LEASE_S) -> None:
        self._redis = redis
        self._lease_s = lease_s
        self._here: defaultdict[str, set[str]] = defaultdict(set)

    @property
    def num_here(self) -> int:
        """Requests of this process."""
        return sum(map(len, self._here.values()))

    async def enter(self, once: Once | None) -> "Place":
        """Count a request; one without a key shares its job with nobody."""
        place = Place(self, _name(once))
        if place.name is not None:
            self._here[place.name].add(place.token)
            await anyio.to_thread.run_sync(partial(self._renew, {place.name: {place.token}}))
        return place

    async def run(self) -> None:
        """Renew what this process has in Redis until cancelled."""
        while True:
            await asyncio.sleep(self._lease_s / RENEWALS_PER_LEASE)
            here = {name: set(tokens) for name, tokens in self._here.items()}
            if here:
                await anyio.to_thread.run_sync(partial(self._renew, here))
            for name, tokens in here.items():
                for token in tokens - self._here.get(name, set()):  # left while it was renewed
                    await anyio.to_thread.run_sync(partial(self._forget, name, token))

    async def leave(self, name: str, token: str) -> None:
        """Count a request no longer; see `Place.leave`."""
        self._here[name].discard(token)
        if not self._here[name]:
            del self._here[name]
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(self._forget, name, token))

    def is_awaited(self, name: str) -> bool:
        """Whether anybody waits, here or elsewhere; blocks."""
        if self._here.get(name):
            return True
        if self._redis is None:
            return False
        try:
            return bool(self._redis.zcount(name, time.time(), "+inf"))
        except RedisError as exc:
            log.warning("waiters.unknown", error=str(exc))
            return False

    def _renew(self, tokens: dict[str, set[str]]) -> None:
        if self._redis is None:
            return
        until = time.time() + self._lease_s
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for name, own in tokens.items():
                    pipeline.zadd(name, dict.fromkeys(own, until))
                    pipeline.pexpire(name, int(self._lease_s * 1000))
                pipeline.execute()
        except RedisError as exc:
            log.warning("waiters.not_renewed", error=str(exc))

    def _forget(self, name: str, token: str) -> None:
        if self._redis is None:
            return
        try:
            self._redis.zrem(name, token)
        except RedisError as exc:
            log.warning("waiters.not_forgotten", error=str(exc))  # it expires


class Place:
    """One request among those that wait.

    Attributes:
        name: What they wait for; None where this one waits alone.
    """

    def __init__(self, waiters: Waiters, name: str | None) -> None:
        self.name = name
        self.token = new_id().hex
        self._waiters = waiters
        self._has_left = False

    async def leave(self) -> None:
        """Wait no longer; leaving twice is leaving once."""
        if self.name is not None and not self._has_left:
            self._has_left = True
            await self._waiters.leave(self.name, self.token)

    def has_company(self) -> bool:
        """Whether others wait, once this one has left; blocks."""
        return self.name is not None and self._waiters.is_awaited(self.name)


def _name(once: Once | None) -> str | None:
    return None if once is None else f"waiting:{once.key_id}:{once.stored_key}"
