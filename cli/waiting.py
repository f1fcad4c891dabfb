"""Waiting for conditions, and being told to stop meanwhile."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from core.errors import ServiceUnavailable

_POLL_S = 0.05

_ECHO_S = 1.0
"""Signals so soon after the first are its echo: `timeout`, `make` and terminals send one to the
process and one to its group."""


class Stopped(Exception):
    """The person at the terminal, or the system, asked this process to end."""


class StopSignal:
    """Set by the first Ctrl-C, SIGTERM or SIGHUP; a later one calls `at_once` and exits.

    Nothing is raised out of a signal handler: an exception at a random line could skip a clean-up.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.at_once: Callable[[], None] = lambda: None
        self.number = signal.SIGINT
        self._first_s = 0.0

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        now_s = time.monotonic()
        if self.event.is_set():
            if now_s - self._first_s < _ECHO_S:
                return
            self.at_once()
            os._exit(128 + number)
        self._first_s = now_s
        self.number = signal.Signals(number)
        self.event.set()

    def check(self) -> None:
        """Raise `Stopped` if a signal came."""
        if self.event.is_set():
            raise Stopped


@contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """Turn the signals that end a program into a `StopSignal`; main thread only."""
    stop = StopSignal()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, stop.handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    timeout_s: float,
    stop: threading.Event,
    find_failure: Callable[[], str | None] = lambda: None,
) -> None:
    """Return once `condition` holds.

    Args:
        what: What is waited for, as in "the API did not become ready".
        find_failure: Says why waiting is pointless, or None.

    Raises:
        Stopped: `stop` was set meanwhile.
        ServiceUnavailable: It did not come to be in time, or cannot any more.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if (failure := find_failure()) is not None:
            raise ServiceUnavailable(failure)
        if time.monotonic() > deadline:
            raise ServiceUnavailable(f"{what} within {timeout_s:g} s.")
        if stop.wait(_POLL_S):
            raise Stopped
