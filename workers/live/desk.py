"""The Redis side of live sessions on a worker: claims them, reads their audio, says it is alive."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis import Redis
from redis.exceptions import RedisError

from core.live import (
    WAKE_S,
    Entry,
    audio_key,
    session_key,
    waiting_key,
    wake_key,
    worker_key,
)
from workers.live.session import LiveSession
from workers.live.voice import Voice

log = structlog.get_logger(__name__)

ENTRIES_A_READ = 32
RETRY_S = 1.0
BEATS_PER_LEASE = 3


class Desk:
    """One thread's view of Redis; another may read `sessions`.

    A session is claimed by setting its worker key if nobody has: whoever looks at the waiting
    sessions may try, so no message is needed and none can be lost.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        models: Sequence[str],
        name: str,
        max_sessions: int,
        lease_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._models = models
        self._name = name
        self._max_sessions = max_sessions
        self._lease_ms = int(lease_s * 1000)
        self._beat_s = lease_s / BEATS_PER_LEASE
        self._on_change = on_change
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}
        self._woken: dict[str, bytes | str] = {wake_key(model): "0-0" for model in models}
        self._beaten_at = float("-inf")

    @property
    def sessions(self) -> list[LiveSession]:
        """Those that are going on."""
        with self._lock:
            return [session for session in self._sessions.values() if not session.is_over]

    def run(self, is_ending: Callable[[], bool]) -> None:
        """Serve until `is_ending`; then tell every client that its session is over."""
        while not is_ending():
            try:
                self._claim()
                self._read()
                self._beat()
                self._put_away()
            except RedisError as exc:
                # The other side notices by itself; we notice at the next beat what is lost.
                log.warning("live.redis_silent", error=str(exc))
                time.sleep(RETRY_S)  # nothing tells when Redis is back
        for session in self.sessions:
            session.end("worker_stopping", "The worker is being stopped; connect again.")
        try:
            self._put_away()
        except RedisError as exc:
            log.warning("live.not_put_away", error=str(exc))  # the keys expire

    def _claim(self) -> None:
        for model in self._models:
            room = self._max_sessions - len(self._sessions)
            if room <= 0:
                return
            waiting: Any = self._redis.zrange(waiting_key(model), 0, room - 1)
            for name in waiting:
                self._claim_one(model, name.decode())

    def _claim_one(self, model: str, session_id: str) -> None:
        key = worker_key(session_id)
        is_ours = self._redis.set(key, self._name, nx=True, px=self._lease_ms)
        # Somebody has it now. If they die before they serve it, its server announces it again.
        self._redis.zrem(waiting_key(model), session_id)
        if not is_ours:
            return
        if not self._redis.exists(session_key(session_id)):
            self._redis.delete(key)
            return
        voice = Voice(self._redis, session_id)
        session = LiveSession(session_id, model, voice, wake=self._on_change)
        with self._lock:
            self._sessions[session_id] = session
        log.info("live.claimed", session_id=session_id, model=model)
        self._on_change()

    def _read(self) -> None:
        """Wait for audio or for a new session; hand over what comes."""
        streams: dict[Any, Any] = dict(self._woken)
        by_key = {audio_key(session.id): session for session in self.sessions}
        streams |= {key: session.last_entry for key, session in by_key.items()}
        answer: Any = self._redis.xread(streams, count=ENTRIES_A_READ, block=int(WAKE_S * 1000))
        for key, entries in answer:
            name = key.decode()
            if name in by_key:
                self._hand_over(by_key[name], entries)
            elif entries:
                self._woken[name] = entries[-1][0]

    def _hand_over(
        self, session: LiveSession, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]
    ) -> None:
        for entry_id, fields in entries:
            if session.is_over:
                return
            try:
                session.take(Entry.read(fields))
            except Exception as exc:  # one session's trouble is not the others'
                log.exception("live.entry_failed", session_id=session.id)
                session.end("internal_error", f"The worker failed: {type(exc).__name__}.")
            session.last_entry = entry_id
        milliseconds, _, number = entries[-1][0].decode().partition("-")
        self._redis.xtrim(
            audio_key(session.id), minid=f"{milliseconds}-{int(number) + 1}", approximate=False
        )
        self._on_change()

    def _beat(self) -> None:
        """Renew our claims; drop the sessions whose client or claim is gone."""
        if time.monotonic() - self._beaten_at < self._beat_s:
            return
        for session in self.sessions:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.set(worker_key(session.id), self._name, xx=True, px=self._lease_ms)
                pipeline.exists(session_key(session.id))
                is_ours, is_wanted = pipeline.execute()
            if not (is_ours and is_wanted) or session.voice.is_lost:
                log.info("live.lost", session_id=session.id, is_ours=bool(is_ours))
                session.is_over = True
        self._beaten_at = time.monotonic()

    def _put_away(self) -> None:
        """Delete what sessions that are over have in Redis."""
        with self._lock:
            over = [session for session in self._sessions.values() if session.is_over]
        for session in over:
            self._redis.delete(worker_key(session.id), audio_key(session.id))
            with self._lock:
                del self._sessions[session.id]
            log.info("live.ended", session_id=session.id)
        if over:
            self._on_change()
