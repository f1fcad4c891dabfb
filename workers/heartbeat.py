"""Renews leases while work goes on."""

import threading
from collections.abc import Callable
from typing import Self

import structlog
from sqlalchemy.exc import DBAPIError

from core.errors import LeaseLost

log = structlog.get_logger(__name__)


class Heartbeat:
    """Calls `renew` at an interval, in a thread of its own, until the `with` block ends.

    A database that does not answer is tried again at the next beat: the lease outlives two misses.

    Attributes:
        lost: Set once `renew` raised LeaseLost; there are no more beats then.
    """

    def __init__(self, renew: Callable[[], None], *, interval_s: float) -> None:
        self._renew = renew
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.lost = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                self._renew()
            except LeaseLost:
                self.lost.set()
                return
            except DBAPIError as exc:
                log.warning("heartbeat.missed", error=str(exc.orig))
