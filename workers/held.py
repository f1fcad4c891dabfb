"""The claims an engine holds: renewed together, given back together."""

import threading
from collections.abc import Iterable, Sequence
from uuid import UUID

import structlog

from core.db import unit_of_work
from lifecycle.windows import (
    WindowLease,
    begin_windows,
    lease_of,
    release_windows,
    renew_windows,
)
from models import Window
from workers.context import WorkerContext

log = structlog.get_logger(__name__)


class HeldWindows:
    """All windows claimed by one engine and not yet settled. Safe to use from several threads.

    One lock orders the writes to these rows within the process, because they skip rows that
    another transaction holds.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._leases: dict[UUID, WindowLease] = {}

    def add(self, windows: Iterable[Window]) -> None:
        """Renew these from now on."""
        with self._lock:
            self._leases.update((window.id, lease_of(window)) for window in windows)

    def drop(self, leases: Iterable[WindowLease]) -> None:
        """Renew these no longer: they are settled, or lost."""
        with self._lock:
            for lease in leases:
                if self._leases.get(lease.window_id) == lease:
                    del self._leases[lease.window_id]

    def forget(self) -> None:
        """Renew nothing any more: whatever is still held after an error expires, and is blamed."""
        with self._lock:
            self._leases.clear()

    def renew(self) -> None:
        """Prolong everything held."""
        with self._lock:
            if self._leases:
                with unit_of_work(self._context.sessions) as uow:
                    renew_windows(
                        uow.session,
                        list(self._leases.values()),
                        lease=self._context.lease,
                        now=self._context.now(),
                    )

    def begin(self, leases: Sequence[WindowLease]) -> set[UUID]:
        """Mark the start of the forward pass; return the ids that are still ours."""
        with self._lock, unit_of_work(self._context.sessions) as uow:
            owned = begin_windows(uow.session, leases, now=self._context.now())
        self.drop(lease for lease in leases if lease.window_id not in owned)
        return owned

    def release(self, leases: Sequence[WindowLease] | None = None) -> None:
        """Give claims back at once, all of them by default."""
        with self._lock:
            chosen = list(self._leases.values()) if leases is None else list(leases)
            with unit_of_work(self._context.sessions) as uow:
                released = release_windows(uow.session, chosen)
        self.drop(chosen)
        if released:
            log.info("windows.released", num_windows=len(released))
