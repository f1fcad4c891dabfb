"""Event types, the channel they are published on, and the publisher."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

import structlog
from redis import Redis
from redis.exceptions import RedisError

from core.queues import JobQueue

log = structlog.get_logger(__name__)


class EventType(StrEnum):
    """What an event says; the names are part of the HTTP interface."""

    JOB_UPDATED = "job.updated"
    TEXT_DELTA = "transcript.text.delta"
    SEGMENT = "transcript.segment"
    TEXT_DONE = "transcript.text.done"
    JOB_COMPLETED = "job.completed"
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"

    @property
    def is_last(self) -> bool:
        """Whether a job's stream ends with this event (until it is retried)."""
        return self in (EventType.JOB_COMPLETED, EventType.JOB_FAILED, EventType.JOB_CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One event as it goes over the wire."""

    job_id: UUID
    seq: int
    type: EventType
    data: dict[str, Any]
    created_at: datetime

    def to_json(self) -> str:
        """Return the message body, the same for pub/sub, SSE and WebSocket."""
        return json.dumps(
            {
                "job_id": str(self.job_id),
                "seq": self.seq,
                "type": str(self.type),
                "created_at": self.created_at.isoformat(),
                "data": self.data,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )


def channel(job_id: UUID) -> str:
    """Return the Redis channel of a job."""
    return f"jobs:{job_id}:events"


class Publisher(Protocol):
    """Tells whoever listens now. Never raises: readers can replay from the database."""

    def publish(self, *events: JobEvent) -> None:
        """Send events, in this order."""
        ...

    def deliveries_due(self) -> None:
        """Wake a delivery worker: events were recorded that webhooks wait for."""
        ...


class RedisPublisher:
    """Publishes on Redis; a dead Redis costs liveness, not results."""

    def __init__(self, redis: Redis, queue: JobQueue | None = None) -> None:
        self._redis = redis
        self._queue = queue

    def publish(self, *events: JobEvent) -> None:
        """See `Publisher`; costs one round trip."""
        pipeline = self._redis.pipeline(transaction=False)
        for event in events:
            pipeline.publish(channel(event.job_id), event.to_json())
        try:
            pipeline.execute()
        except RedisError as exc:
            log.warning(
                "events.dropped",
                job_id=str(events[0].job_id),
                num_events=len(events),
                error=str(exc),
            )

    def deliveries_due(self) -> None:
        """See `Publisher`; without a queue the sweeper wakes them."""
        if self._queue is not None:
            self._queue.deliver()


def connect_redis(url: str) -> Redis:
    """Return a client with short timeouts for commands (blocking reads must set their own)."""
    # A local socket has no keep-alive, and redis-py refuses the option there.
    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}
    return Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2, **keepalive)
