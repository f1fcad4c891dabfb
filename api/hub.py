"""One Redis subscription a process, fanned out to whoever follows a job or speaks live.

Events of jobs are hints: what is lost here (a restart of Redis, a full queue) shows as a gap, and
readers fill gaps from the database; see `api.job_events`. Of live sessions nothing is kept: there
a gap is the end; see `api.realtime`.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from core.events import EventType, channel
from core.live import EVENTS_PATTERN, events_channel

log = structlog.get_logger(__name__)

PATTERNS = ("jobs:*:events", EVENTS_PATTERN)
MAX_QUEUED = 256
"""Events a reader may lag behind before its queue is dropped and it must read the database."""

RECONNECT_S = (0.1, 0.2, 0.5, 1.0, 2.0)
IDLE_S = 10.0
HEALTH_CHECK_S = 15


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event as published; `body` is `core.events.JobEvent.to_json`."""

    seq: int
    type: EventType
    body: str


class Subscription:
    """A bounded queue of one reader; belongs to the event loop."""

    def __init__(self) -> None:
        self._events: deque[LiveEvent] = deque()
        self._has_gap = False
        self._wake = asyncio.Event()

    def offer(self, event: LiveEvent) -> None:
        """Queue an event; a reader that lags too far loses its queue and learns of a gap."""
        if len(self._events) >= MAX_QUEUED:
            self.mark_gap()
        else:
            self._events.append(event)
            self._wake.set()

    def mark_gap(self) -> None:
        """Say that events may have been missed."""
        self._events.clear()
        self._has_gap = True
        self._wake.set()

    async def take(self, *, timeout_s: float) -> list[LiveEvent] | None:
        """Return what is queued, waiting for it; [] after `timeout_s`, None at a gap."""
        try:
            await asyncio.wait_for(self._wake.wait(), timeout_s)
        except TimeoutError:
            return []
        self._wake.clear()
        if self._has_gap:
            self._has_gap = False
            self._events.clear()
            return None
        events = list(self._events)
        self._events.clear()
        return events


class LiveVoice(Protocol):
    """Hears what the worker of one live session says; called in the hub's event loop."""

    def hear(self, message: bytes) -> None:
        """Take the next message; must be quick. Raises `ValueError` and its like if it is none."""
        ...

    def lose(self) -> None:
        """Learn that messages may have been missed."""
        ...


class EventHub:
    """Runs as a task of the application's lifespan; all methods belong to its event loop.

    Attributes:
        is_closing: Whether the server ends: whoever follows a job should leave.
    """

    def __init__(self, redis_url: str) -> None:
        self.is_closing = False
        self._url = redis_url
        self._subscriptions: dict[UUID, set[Subscription]] = {}
        self._voices: dict[bytes, LiveVoice] = {}
        self._connected = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether events arrive at this moment, as far as one can know."""
        return self._connected.is_set()

    def close(self) -> None:
        """Wake everybody who follows a job, because the server ends."""
        self.is_closing = True
        self._mark_gaps()

    async def wait_connected(self, *, timeout_s: float) -> bool:
        """Wait until events arrive; return whether they do."""
        try:
            await asyncio.wait_for(self._connected.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    @contextmanager
    def subscribe(self, job_id: UUID) -> Iterator[Subscription]:
        """Provide a queue of the job's events from now on."""
        subscription = Subscription()
        self._subscriptions.setdefault(job_id, set()).add(subscription)
        try:
            yield subscription
        finally:
            remaining = self._subscriptions[job_id]
            remaining.discard(subscription)
            if not remaining:
                del self._subscriptions[job_id]

    @contextmanager
    def attend(self, session_id: str, voice: LiveVoice) -> Iterator[None]:
        """Give `voice` what the worker of a live session says from now on."""
        name = events_channel(session_id).encode()
        self._voices[name] = voice
        try:
            yield
        finally:
            del self._voices[name]

    async def run(self) -> None:
        """Listen until cancelled; come back from every failure of Redis."""
        failures = 0
        while True:
            connected = False
            try:
                async with self._connect() as redis, redis.pubsub() as pubsub:
                    await pubsub.psubscribe(*PATTERNS)
                    connected = True
                    await self._listen(pubsub)
            except (RedisError, OSError) as exc:
                failures = 0 if connected else failures + 1
                log.warning("hub.disconnected", error=str(exc), failures=failures)
            finally:
                self._connected.clear()
                for voice in self._voices.values():
                    voice.lose()
            await asyncio.sleep(RECONNECT_S[min(failures, len(RECONNECT_S) - 1)])

    def _connect(self) -> Redis:
        # No retries inside: redis-py would resubscribe in silence, and nobody would see the gap.
        # A local socket has no keep-alive, and redis-py refuses the option there.
        keepalive = {} if self._url.startswith("unix:") else {"socket_keepalive": True}
        return Redis.from_url(
            self._url,
            socket_timeout=None,
            socket_connect_timeout=2,
            **keepalive,
            health_check_interval=HEALTH_CHECK_S,
            retry=Retry(NoBackoff(), 0),
        )

    async def _listen(self, pubsub: PubSub) -> None:
        while True:
            message = await pubsub.get_message(timeout=IDLE_S)
            if message is None:
                continue
            if message["type"] == "psubscribe" and message["data"] == len(PATTERNS):
                self._connected.set()
                self._mark_gaps()
            elif message["type"] == "pmessage":
                self._dispatch(message["channel"], message["data"])

    def _mark_gaps(self) -> None:
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.mark_gap()

    def _dispatch(self, name: bytes, data: bytes) -> None:
        if name in self._voices:
            try:
                self._voices[name].hear(data)
            except (ValueError, KeyError, TypeError) as exc:
                log.warning("hub.message_unreadable", error=str(exc))
                self._voices[name].lose()
            return
        job_id = _job_of(name)
        if job_id is None or job_id not in self._subscriptions:
            return
        try:
            body = data.decode()
            fields = json.loads(body)
            event = LiveEvent(int(fields["seq"]), EventType(fields["type"]), body)
        except (ValueError, KeyError, TypeError) as exc:
            log.warning("hub.message_unreadable", error=str(exc))
            return
        for subscription in self._subscriptions[job_id]:
            subscription.offer(event)


def _job_of(name: bytes) -> UUID | None:
    try:
        job_id = UUID(name.decode().split(":")[1])
    except (ValueError, IndexError):
        return None
    return job_id if channel(job_id).encode() == name else None
