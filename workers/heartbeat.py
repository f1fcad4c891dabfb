"""Renews leases while work goes on."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Self
from weakref import WeakMethod

import structlog
from sqlalchemy.exc import DBAPIError

from core.errors import LeaseLost

log = structlog.get_logger(__name__)


class Heartbeat:
    """Calls `renew` at an interval, in a thread of its own, until the `with` block ends.

    A database that does not answer is tried again at the next beat: the lease outlives two misses.
    The thread begins half an interval before the first beat, so that short work costs none.

    Attributes:
        lost: Set once `renew` raised LeaseLost; there are no more beats then.
    """

    def __init__(self, renew: Callable[[], None], *, interval_s: float) -> None:
        self._renew = renew
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.lost = threading.Event()

    def __enter__(self) -> Self:
        self._call_later()
        return self

    def __exit__(self, *_exc: object) -> None:
        with self._lock:
            self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _call_later(self) -> None:
        _starter.call_later(self._interval_s / 2, WeakMethod(self._start))

    def _start(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
            try:
                thread.start()
            except RuntimeError as exc:  # the system has no more threads just now
                log.warning("heartbeat.missed", error=str(exc))
                self._call_later()
            else:
                self._thread = thread

    def _run(self) -> None:
        wait_s = self._interval_s / 2
        while not self._ended.wait(wait_s):
            wait_s = self._interval_s
            try:
                self._renew()
            except LeaseLost:
                self.lost.set()
                return
            except DBAPIError as exc:
                log.warning("heartbeat.missed", error=str(exc.orig))


class _Starter:
    """Makes short calls later, all in one thread, which is there once it is needed.

    It keeps nothing alive: what is gone by the time of its call is not called.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, WeakMethod[Callable[[], None]]]] = []
        self._numbers = itertools.count()  # for calls at equal times, which cannot be compared
        self._thread: threading.Thread | None = None

    def call_later(self, delay_s: float, call: WeakMethod[Callable[[], None]]) -> None:
        entry = (time.monotonic() + delay_s, next(self._numbers), call)
        with self._changed:
            heapq.heappush(self._calls, entry)
            if self._calls[0] is entry:
                self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._calls or self._calls[0][0] > time.monotonic():
                    due = self._calls[0][0] - time.monotonic() if self._calls else None
                    self._changed.wait(due)
                _, _, reference = heapq.heappop(self._calls)
            call = reference()
            if call is not None:
                call()


_starter = _Starter()
