"""The checkpoints an engine keeps in memory."""

import time

import structlog

from adapters.base import Adapter
from workers.catalog import Catalog

log = structlog.get_logger(__name__)

MAX_LOADED = 2


class LoadedAdapters:
    """Loads lazily and keeps those used last. Used by one thread at a time.

    Attributes:
        current: The one that batches used last, or None.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._adapters: dict[str, Adapter] = {}
        self._pinned: set[str] = set()
        self.current: str | None = None
        self._since = time.monotonic()

    @property
    def served_s(self) -> float:
        """How long the current one has been in use without a change."""
        return time.monotonic() - self._since

    def get(self, model: str) -> Adapter:
        """Return the adapter of `model`; raises what `Catalog.load` does."""
        adapter = self._load(model)
        if self.current != model:
            self.current = model
            self._since = time.monotonic()
        return adapter

    def pin(self, model: str) -> Adapter:
        """Return the adapter of `model` and keep it until `unpin`, beyond `MAX_LOADED` if need be.

        Raises what `Catalog.load` does.
        """
        adapter = self._load(model, is_pin=True)
        self._pinned.add(model)
        return adapter

    def unpin(self, model: str) -> None:
        """Let `model` go when memory is needed."""
        self._pinned.discard(model)

    def close(self) -> None:
        """Free everything."""
        for model in list(self._adapters):
            self._evict(model)
        self.current = None

    def _load(self, model: str, *, is_pin: bool = False) -> Adapter:
        if model not in self._adapters:
            # A batch may be between two of its parts: `current` is its model.
            kept = self._pinned | ({self.current} if is_pin else set())
            free = [name for name in self._adapters if name not in kept]
            while len(self._adapters) >= MAX_LOADED and free:  # before loading: memory for one more
                self._evict(free.pop(0))
            started = time.monotonic()
            self._adapters[model] = self._catalog.load(model)
            log.info("model.loaded", model=model, seconds=round(time.monotonic() - started, 1))
        adapter = self._adapters.pop(model)
        self._adapters[model] = adapter  # last in the order of use
        return adapter

    def _evict(self, model: str) -> None:
        self._adapters.pop(model).close()
        log.info("model.unloaded", model=model)
