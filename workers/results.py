"""Writes what came out of window batches."""

from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

import structlog

from core.db import unit_of_work
from core.transcript import Hypothesis
from lifecycle.windows import WindowLease, complete_windows, fail_window
from workers.context import WorkerContext
from workers.held import HeldWindows
from workers.loader import LoadedWindow

log = structlog.get_logger(__name__)

Outcome = tuple[LoadedWindow, Hypothesis | Exception]


class ResultWriter:
    """Stores hypotheses and failures, one job a transaction."""

    def __init__(self, context: WorkerContext, held: HeldWindows) -> None:
        self._context = context
        self._held = held

    def store(self, outcomes: Sequence[Outcome]) -> None:
        """Write what came out, job by job; runs while the model is at the next batch."""
        context = self._context
        by_job = sorted(outcomes, key=lambda outcome: outcome[0].row.job_id)
        for job_id, group in groupby(by_job, key=lambda outcome: outcome[0].row.job_id):
            results: list[tuple[WindowLease, Hypothesis]] = []
            for window, answer in group:
                if isinstance(answer, Exception):
                    self.fail(job_id, window.lease, answer)
                else:
                    results.append((window.lease, answer))
            if not results:
                continue
            with unit_of_work(context.sessions) as uow:
                num_stored = complete_windows(
                    uow, context.publisher, context.queue, job_id, results, now=context.now()
                )
            self._held.drop(lease for lease, _ in results)
            if num_stored < len(results):
                log.info(
                    "windows.fenced", job_id=str(job_id), num_windows=len(results) - num_stored
                )

    def fail(self, job_id: UUID, lease: WindowLease, error: Exception) -> None:
        """Count a failure of one window."""
        log.warning(
            "window.failed",
            job_id=str(job_id),
            window_id=str(lease.window_id),
            attempt=lease.attempt,
            error=str(error),
        )
        with unit_of_work(self._context.sessions) as uow:
            fail_window(
                uow,
                self._context.publisher,
                self._context.queue,
                job_id,
                lease,
                error=error,
                max_attempts=self._context.settings.max_attempts,
                now=self._context.now(),
            )
        self._held.drop([lease])
