"""What goes from a client to the worker of its session, as much of it as there is room for."""

import asyncio
import time

from api.realtime.ends import SessionEnded
from api.realtime.store import LiveStore
from api.sockets import POLICY
from core.live import TICKS_HZ, Entry, LiveConfig
from core.settings import Settings

ENTRIES_PER_S = 100
"""Entries that may wait for each second of audio that may: crumbs cost memory too."""
ROOM_WAIT_S = 18.0
"""How long audio waits for room while the model hears nothing: longer than a CPU takes for one step
of a minute of turns, and than a lost worker goes unnoticed. Nothing else of the client is read
meanwhile, so that whoever sends faster than the model hears is slowed down; nor are the answers to
the server's pings, for which it waits 20 s."""


class Uplink:
    """Sends entries, and waits while too many are on their way.

    Attributes:
        started_s: When the first was sent, by the monotonic clock; None before.
    """

    def __init__(self, store: LiveStore, session_id: str, settings: Settings) -> None:
        self.started_s: float | None = None
        self._store = store
        self._session_id = session_id
        self._limit_s = settings.live_buffer_s
        self._start_s = settings.live_start_s
        self._is_ready = False
        self._sent_ticks = 0
        self._heard_ms = 0
        self._num_sent = 0
        self._num_read = 0
        self._room = asyncio.Event()

    def hear(self, audio_ms: int, num_entries: int) -> None:
        """Learn how much audio the model has heard, and how many entries the worker has read."""
        self._heard_ms, self._num_read = audio_ms, num_entries
        self._room.set()

    def mark_ready(self) -> None:
        """Learn that the model is loaded: whoever waits for room has less patience now."""
        self._is_ready = True
        self._room.set()

    async def send(
        self, *entries: Entry, config: LiveConfig, num_ticks: int = 0, event_id: str | None
    ) -> None:
        """Hand entries with so much audio to the worker, which is asked for with the first.

        Raises:
            SessionEnded: There was no room for long, or Redis has forgotten the session.
        """
        await self._wait_for_room(num_ticks, event_id)
        if self.started_s is None:
            self.started_s = time.monotonic()
            await self._store.start(self._session_id, config)
        if not await self._store.send(self._session_id, entries):
            raise SessionEnded("session_lost", "Redis has forgotten the session; start again.")
        self._num_sent += len(entries)
        self._sent_ticks += num_ticks

    async def _wait_for_room(self, num_ticks: int, event_id: str | None) -> None:
        full = SessionEnded(
            "input_audio_buffer_full",
            f"More than {self._limit_s} s of audio, or {self._limit_s * ENTRIES_PER_S} events, "
            "wait to be recognised; send audio as it is spoken.",
            POLICY,
            event_id=event_id,
        )
        if num_ticks > self._limit_s * TICKS_HZ:
            raise full
        while not self._has_room(num_ticks):
            self._room.clear()
            # Finding a worker and loading a model takes longer than a step.
            patience_s = ROOM_WAIT_S if self._is_ready else self._start_s
            try:
                await asyncio.wait_for(self._room.wait(), patience_s)
            except TimeoutError:
                raise full from None

    def _has_room(self, num_ticks: int) -> bool:
        waiting_ticks = self._sent_ticks - self._heard_ms * TICKS_HZ // 1000
        num_waiting = self._num_sent - self._num_read
        return (
            waiting_ticks + num_ticks <= self._limit_s * TICKS_HZ
            and num_waiting < self._limit_s * ENTRIES_PER_S
        )
