"""What lives once in a worker process: its services and its engines."""

import os
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

import structlog

from core.errors import LeaseLost
from core.settings import Settings
from workers.catalog import models_by_adapter
from workers.context import WorkerContext, make_context
from workers.device import DeviceWatch
from workers.engine import Engine

log = structlog.get_logger(__name__)


class WorkerProcess:
    """Built before Celery starts; connects when first used.

    Attributes:
        device: Says whether the accelerator still works.
    """

    def __init__(self, settings: Settings, *, name: str, num_long_media: int) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.device = DeviceWatch(settings.device, on_loss=self._end)
        self._num_long_media = num_long_media
        self._name = f"{name}@{socket.gethostname()}"
        self._lock = threading.Lock()
        self._context: WorkerContext | None = None
        self._engines: dict[str, Engine] = {}

    @property
    def context(self) -> WorkerContext:
        """The services."""
        with self._lock:
            if self._context is None:
                self._context = make_context(
                    self.settings,
                    device=self.device,
                    stopping=self.stopping,
                    num_long_media=self._num_long_media,
                )
            return self._context

    def get_engine(self, adapter: str) -> Engine | None:
        """Return the engine of an adapter, or None if none of its checkpoints is served here."""
        context = self.context
        with self._lock:
            if adapter not in self._engines:
                models = models_by_adapter(context.catalog).get(adapter)
                if models is None:
                    log.warning("adapter.unknown", adapter=adapter)
                    return None
                self._engines[adapter] = Engine(
                    context, adapter=adapter, models=models, name=self._name
                )
            return self._engines[adapter]

    def start_engines(self, adapters: Sequence[str]) -> None:
        """Serve live sessions of these adapters from now on, and load what they need."""
        for adapter in adapters:
            engine = self.get_engine(adapter)
            if engine is not None:
                engine.live.start()
                if self.settings.preload:
                    engine.preload()

    def release_all(self) -> None:
        """Give back every claim, because the process ends without waiting for the work."""
        if self._context is None:
            return
        releases = [engine.release_all for engine in list(self._engines.values())]
        for release in [*releases, *list(self._context.give_up.values())]:
            with suppress(LeaseLost):
                release()

    def close(self) -> None:
        """Free memory and connections; call it when no task runs."""
        for engine in self._engines.values():
            engine.close()
        if self._context is not None:
            bind = self._context.sessions.kw["bind"]
            bind.dispose()

    def _end(self) -> None:
        """Begin to end this process: whoever supervises it starts another."""
        self.stopping.set()
        os.kill(os.getpid(), signal.SIGTERM)
