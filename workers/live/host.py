"""The live sessions of one engine: a thread for Redis and one for the model."""

import threading
from collections.abc import Sequence

import structlog

from core.events import connect_redis
from core.settings import Settings
from workers.device import DeviceWatch
from workers.gate import ModelGate
from workers.live.desk import Desk
from workers.live.stepper import Stepper
from workers.loaded import LoadedAdapters

log = structlog.get_logger(__name__)

JOIN_S = 5.0


class LiveHost:
    """Started with the process, ended before the models are closed."""

    def __init__(
        self,
        settings: Settings,
        *,
        models: Sequence[str],
        name: str,
        loaded: LoadedAdapters,
        gate: ModelGate,
        device: DeviceWatch,
        stopping: threading.Event,
    ) -> None:
        """Prepare; nothing is asked of Redis yet.

        Args:
            stopping: The process's: the clients hear at once that it ends.
        """
        self._desk = Desk(
            connect_redis(settings.redis),
            models=models,
            name=name,
            max_sessions=settings.live_sessions,
            lease_s=settings.live_lease_s,
            on_change=self._wake,
        )
        self._stepper = Stepper(
            sessions=lambda: self._desk.sessions, loaded=loaded, gate=gate, device=device
        )
        self._ending = threading.Event()
        self._stopping = stopping
        self._threads = [
            threading.Thread(
                target=self._desk.run, args=(self._is_ending,), name="live-desk", daemon=True
            ),
            threading.Thread(target=self._stepper.run, name="live-model", daemon=True),
        ]

    @property
    def is_busy(self) -> bool:
        """Whether somebody is speaking: batches then give the models back often."""
        return bool(self._desk.sessions)

    def start(self) -> None:
        """Listen for sessions."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Tell the clients, give everything back and end the threads."""
        self._ending.set()
        self._stepper.end()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(JOIN_S)

    def _is_ending(self) -> bool:
        return self._ending.is_set() or self._stopping.is_set()

    def _wake(self) -> None:
        self._stepper.wake()
