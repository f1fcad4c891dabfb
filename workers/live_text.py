"""Text of windows that are in the model, published while it is being decoded."""

import threading
from collections.abc import Iterable, Sequence

from core.db import unit_of_work
from lifecycle.deltas import may_tell_early
from lifecycle.windows import tell_text
from workers.context import WorkerContext
from workers.loader import LoadedWindow

INTERVAL_S = 0.2
"""How often: a transaction a job each time, and people do not read faster."""


class LiveText:
    """Collects what an adapter hears, and tells it from another thread.

    The model's thread only appends to a string. Of each streaming job the batch's first window is
    watched: the text of later ones may not be told before it is done.

    Attributes:
        is_needed: Whether any window of the batch is to be told of.
    """

    def __init__(self, context: WorkerContext, windows: Sequence[LoadedWindow]) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}
        first: dict[object, LoadedWindow] = {}
        for window in sorted(windows, key=lambda w: w.row.index):
            if may_tell_early(window.options):
                first.setdefault(window.row.job_id, window)
        self._watched = list(first.values())
        self.is_needed = bool(self._watched)

    def restart(self, keys: Iterable[str]) -> None:
        """Forget what was heard in these windows and not told: they are read anew."""
        with self._lock:
            for key in keys:
                self._texts.pop(key, None)

    def hear(self, key: str, delta: str) -> None:
        """Take the next piece of a window's text."""
        with self._lock:
            self._texts[key] = self._texts.get(key, "") + delta

    def tell(self) -> None:
        """Publish what can be; runs every `INTERVAL_S` while the model works."""
        for window in self._watched:
            with self._lock:
                text = self._texts.get(str(window.row.id), "")
            if not text:
                continue
            with unit_of_work(self._context.sessions) as uow:
                tell_text(
                    uow,
                    self._context.publisher,
                    window.row.job_id,
                    window.lease,
                    text,
                    now=self._context.now(),
                )
