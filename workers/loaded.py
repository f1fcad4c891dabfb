"""The checkpoints an engine keeps in memory."""

import time

import structlog

from adapters.base import Adapter
from workers.catalog import Catalog

log = structlog.get_logger(__name__)

MAX_LOADED = 2


class LoadedAdapters:
    """Loads lazily and keeps those used last. Used by one thread.

    Attributes:
        current: The one used last, or None.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._adapters: dict[str, Adapter] = {}
        self.current: str | None = None
        self._since = time.monotonic()

    @property
    def served_s(self) -> float:
        """How long the current one has been in use without a change."""
        return time.monotonic() - self._since

    def get(self, model: str) -> Adapter:
        """Return the adapter of `model`; raises what `Catalog.load` does."""
        if model not in self._adapters:
            while len(self._adapters) >= MAX_LOADED:  # before loading: memory for one more
                self._evict(next(iter(self._adapters)))
            started = time.monotonic()
            self._adapters[model] = self._catalog.load(model)
            log.info("model.loaded", model=model, seconds=round(time.monotonic() - started, 1))
        adapter = self._adapters.pop(model)
        self._adapters[model] = adapter  # last in the order of use
        if self.current != model:
            self.current = model
            self._since = time.monotonic()
        return adapter

    def close(self) -> None:
        """Free everything."""
        for model in list(self._adapters):
            self._evict(model)
        self.current = None

    def _evict(self, model: str) -> None:
        self._adapters.pop(model).close()
        log.info("model.unloaded", model=model)
