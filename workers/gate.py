"""Who may use the models now: batches, or live sessions, whose listeners wait for the answer."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_BATCH_WAIT_S = 2.0
"""Longest that a batch gives way to live steps: a crowd of live sessions slows jobs down, but
does not stop them."""


class ModelGate:
    """Lets one thread use the models at a time; live steps go first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._num_live_waiting = 0
        self._num_overdue = 0

    @contextmanager
    def live(self) -> Iterator[None]:
        """Hold the models for a live step."""
        with self._changed:
            self._num_live_waiting += 1
            self._changed.wait_for(lambda: not self._is_taken and not self._num_overdue)
            self._num_live_waiting -= 1
            self._is_taken = True
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold the models for part of a batch; short parts keep live sessions alive."""
        with self._changed:
            if not self._changed.wait_for(self._is_free_for_batch, MAX_BATCH_WAIT_S):
                self._num_overdue += 1
                self._changed.wait_for(lambda: not self._is_taken)
                self._num_overdue -= 1
            self._is_taken = True
        try:
            yield
        finally:
            self._release()

    def _is_free_for_batch(self) -> bool:
        return not self._is_taken and not self._num_live_waiting

    def _release(self) -> None:
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()
