"""How a worker speaks to the clients of live sessions."""

import threading
from typing import Any

import structlog
from redis import Redis
from redis.exceptions import RedisError

from core.live import Told, dump_message, events_channel

log = structlog.get_logger(__name__)


class Voice:
    """Publishes the numbered events of one session; any thread may call it.

    Attributes:
        is_lost: Whether an event could not be published: what follows is of no use to anybody.
    """

    def __init__(self, redis: Redis, session_id: str) -> None:
        self._redis = redis
        self._channel = events_channel(session_id)
        self._lock = threading.Lock()
        self._seq = 0
        self.is_lost = False

    def tell(self, kind: Told, **fields: Any) -> None:  # noqa: ANN401 - JSON of many shapes
        """Publish the next event."""
        with self._lock:
            if self.is_lost:
                return
            seq = None
            if kind is not Told.HEARD:
                self._seq += 1
                seq = self._seq
            try:
                self._redis.publish(self._channel, dump_message(kind, seq, fields))
            except RedisError as exc:
                self.is_lost = seq is not None
                log.warning("live.event_lost", event_type=kind, error=str(exc))
