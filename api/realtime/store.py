"""The Redis side of live sessions in the API: reserves places, hands audio to the worker."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from uuid import UUID

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError

from core.errors import LimitExceeded, ServiceUnavailable
from core.live import (
    WAKE_LENGTH,
    Entry,
    LiveConfig,
    Sent,
    audio_key,
    owner_key,
    session_key,
    waiting_key,
    wake_key,
    worker_key,
)

RETRY_AFTER_S = 30


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a look at a session's keys shows.

    Attributes:
        is_known: Whether Redis still has the session.
        has_worker: Whether a worker has it.
    """

    is_known: bool
    has_worker: bool


class LiveStore:
    """Commands about live sessions; every one raises `ServiceUnavailable` if Redis is silent.

    Each write also sets when its keys expire, in one transaction: what a crash leaves goes by
    itself.
    """

    def __init__(self, redis_url: str, *, lease_s: float) -> None:
        # A local socket has no keep-alive, and redis-py refuses the option there.
        keepalive = {} if redis_url.startswith("unix:") else {"socket_keepalive": True}
        self._redis = Redis.from_url(
            redis_url, socket_timeout=10, socket_connect_timeout=10, **keepalive
        )
        self._lease_ms = int(lease_s * 1000)
        self._num_open = 0

    @contextmanager
    def enter(self, *, max_open: int) -> Iterator[None]:
        """Count a session of this process.

        Raises:
            LimitExceeded: There are `max_open` already.
        """
        if self._num_open >= max_open:
            raise LimitExceeded(
                "This server has as many live sessions as it may.", retry_after_s=RETRY_AFTER_S
            )
        self._num_open += 1
        try:
            yield
        finally:
            self._num_open -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        await self._redis.aclose()

    async def reserve(self, key_id: UUID, session_id: str, *, limit: int, now_s: float) -> None:
        """Count a session of a key.

        Args:
            limit: Most sessions of the key; 0 for no limit.

        Raises:
            LimitExceeded: The key has as many already.
        """
        key = owner_key(key_id)
        async with self._answering(), self._redis.pipeline() as pipeline:
            pipeline.zremrangebyscore(key, "-inf", now_s)
            self._renew_place(pipeline, key, session_id, now_s)
            pipeline.zcard(key)
            *_, num_sessions = await pipeline.execute()
            if limit and num_sessions > limit:
                await self._redis.zrem(key, session_id)
                raise LimitExceeded(
                    f"This key has {limit} live sessions, as many as it may.",
                    retry_after_s=RETRY_AFTER_S,
                )

    async def start(self, session_id: str, config: LiveConfig) -> None:
        """Ask for a worker; what is sent from now on waits for it."""
        first = Entry(kind=Sent.CONFIG, data=config.to_json().encode())
        async with self._answering(), self._redis.pipeline() as pipeline:
            pipeline.set(session_key(session_id), config.model, px=self._lease_ms)
            pipeline.xadd(audio_key(session_id), first.fields())
            pipeline.pexpire(audio_key(session_id), self._lease_ms)
            self._announce(pipeline, session_id, config.model)
            await pipeline.execute()

    async def send(self, session_id: str, entries: Sequence[Entry]) -> bool:
        """Hand entries to the worker, in order; return False if Redis has forgotten the session."""
        key = audio_key(session_id)
        async with self._answering(), self._redis.pipeline() as pipeline:
            for entry in entries:  # into the stream of `start` alone, which expires
                pipeline.xadd(key, entry.fields(), nomkstream=True)
            return None not in await pipeline.execute()

    async def keep_place(self, key_id: UUID, session_id: str, *, now_s: float) -> None:
        """Go on counting a session of a key."""
        async with self._answering(), self._redis.pipeline() as pipeline:
            self._renew_place(pipeline, owner_key(key_id), session_id, now_s)
            await pipeline.execute()

    async def beat(self, session_id: str, model: str, *, is_waiting: bool) -> Pulse:
        """Say that the client is there, and look whether the worker is.

        Args:
            is_waiting: Whether to ask for a worker again if there is none.
        """
        async with self._answering(), self._redis.pipeline() as pipeline:
            pipeline.pexpire(session_key(session_id), self._lease_ms)
            pipeline.pexpire(audio_key(session_id), self._lease_ms)
            pipeline.exists(worker_key(session_id))
            is_known, has_audio, has_worker = await pipeline.execute()
            pulse = Pulse(bool(is_known and has_audio), bool(has_worker))
            if is_waiting and pulse.is_known and not has_worker:
                self._announce(pipeline, session_id, model)
                await pipeline.execute()
            return pulse

    async def close(self, key_id: UUID, session_id: str, model: str, *, has_worker: bool) -> None:
        """Free the session's place and keys; the worker puts away what it still reads."""
        async with self._answering(), self._redis.pipeline() as pipeline:
            pipeline.zrem(owner_key(key_id), session_id)
            pipeline.zrem(waiting_key(model), session_id)
            pipeline.delete(session_key(session_id))
            if has_worker:
                end = Entry(kind=Sent.END)
                pipeline.xadd(audio_key(session_id), end.fields(), nomkstream=True)
                pipeline.pexpire(audio_key(session_id), self._lease_ms)
            else:
                pipeline.delete(audio_key(session_id))
            await pipeline.execute()

    def _renew_place(self, pipeline: Pipeline, key: str, session_id: str, now_s: float) -> None:
        pipeline.zadd(key, {session_id: now_s + self._lease_ms / 1000})
        pipeline.pexpire(key, self._lease_ms)

    def _announce(self, pipeline: Pipeline, session_id: str, model: str) -> None:
        waiting, wake = waiting_key(model), wake_key(model)
        # Equal scores are sorted by name, and names (UUIDv7) by age.
        pipeline.zadd(waiting, {session_id: 0})
        pipeline.pexpire(waiting, self._lease_ms)
        pipeline.xadd(wake, {"session": session_id}, maxlen=WAKE_LENGTH, approximate=False)
        pipeline.pexpire(wake, self._lease_ms)

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        try:
            yield
        except (RedisError, OSError) as exc:
            raise ServiceUnavailable("Redis does not answer.") from exc
