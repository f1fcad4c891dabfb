"""Notices that the accelerator is lost, so that the worker ends instead of failing all jobs."""

import threading
from collections.abc import Callable, Iterable

import structlog

from adapters.device import is_lost
from core.errors import ScriptoriumError

log = structlog.get_logger(__name__)


class DeviceWatch:
    """Looks at the device when something went wrong that no adapter raises on purpose.

    Windows fail fast on a lost device, and there is always a next one: left alone, one worker
    with a broken GPU would fail an archive within minutes while the others work.

    Attributes:
        is_lost: Whether it was found lost. That does not pass within a process.
    """

    def __init__(self, name: str, *, on_loss: Callable[[], None]) -> None:
        self.is_lost = False
        self._name = name
        self._on_loss = on_loss
        self._lock = threading.Lock()

    def look(self, outcomes: Iterable[object]) -> bool:
        """Return whether the device is lost; the first time, `on_loss` is called.

        Args:
            outcomes: What came of some work, exceptions among it. Without an unexpected one the
                device is not asked.
        """
        with self._lock:
            if not self.is_lost and any(map(_is_unexpected, outcomes)) and is_lost(self._name):
                self.is_lost = True
                log.error("device.lost", device=self._name)
                self._on_loss()
            return self.is_lost


def _is_unexpected(outcome: object) -> bool:
    return isinstance(outcome, Exception) and not isinstance(outcome, ScriptoriumError)
