"""Takes many things through their steps at once, and puts off what the server has no time for."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cli.client import NotNow
from cli.ledger import Ledger, State
from cli.progress import ProgressView, Tally
from cli.steps import FileResult, Item, Later, Pending, Steps, failed
from cli.waiting import Stopped
from core.errors import ServiceUnavailable

NUM_UPLOADS = 4
_NUM_WATCHERS = 4
_FIRST_LOOK_S = 0.2
_SLOWEST_LOOK_S = 2.0
_LOOK_GROWTH = 0.1
"""Work is looked at after a tenth of the time that it has taken so far, within the two limits."""

_REFRESH_S = 0.25
_PATIENCE_S = 300.0
"""When steps have only failed for so long, the run is given up; the next one goes on."""

_SLOWEST_RETRY_S = 30.0
_MAX_FAULTS = 3

OutcomeT = TypeVar("OutcomeT")


@dataclass
class RunLoop(ABC, Generic[OutcomeT]):
    """One run; `run` blocks until every item has a result.

    Steps run in threads; the rest, so the ledger and the screen, belongs to the caller's thread.

    Attributes:
        on_result: Called for each item.
    """

    steps: Steps
    ledger: Ledger
    tally: Tally
    view: ProgressView
    stop: threading.Event
    on_result: Callable[[FileResult], None]
    _waiting: deque[Item] = field(default_factory=deque)
    _active: dict[Item, None] = field(default_factory=dict)
    _uploads: ThreadPoolExecutor = field(init=False)
    _watchers: ThreadPoolExecutor = field(init=False)
    _futures: dict[Future[OutcomeT | Later], Pending] = field(default_factory=dict)
    _busy: set[Pending] = field(default_factory=set)
    _failing_since_s: float | None = None
    _told: str = ""

    def run(self, items: Sequence[Item]) -> None:
        """Take `items` through the server.

        Raises:
            Stopped: The stop event was set; what is done is in the ledger.
            ServiceUnavailable: The server has not answered for minutes.
            Unauthenticated: The key is wrong.
        """
        self._waiting.extend(items)
        self._uploads = ThreadPoolExecutor(NUM_UPLOADS, thread_name_prefix="upload")
        self._watchers = ThreadPoolExecutor(_NUM_WATCHERS, thread_name_prefix="watch")
        try:
            while self._waiting or self._active:
                if self.stop.is_set():
                    raise Stopped
                self._start_steps(time.monotonic())
                self._take_outcomes()
                self.view.refresh()
        except Stopped:
            if not all(future.done() for future in self._futures):
                self.view.say("Interrupted; waiting for what is on its way. Again to end at once.")
            self._shut_down()
            self._take_written()
            raise
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        for pool in (self._uploads, self._watchers):
            pool.shutdown(cancel_futures=self.stop.is_set())

    def _take_written(self) -> None:
        """Note transcripts that were written after the run was stopped, so that none is redone."""
        for future, subject in self._futures.items():
            if future.cancelled() or future.exception() is not None:
                continue
            outcome = future.result()
            if not isinstance(outcome, FileResult) or not isinstance(subject, Item):
                continue
            if outcome.status == "completed":
                self._finish(subject, outcome)

    @abstractmethod
    def _start_steps(self, now_s: float) -> None:
        """Begin what is due."""

    @abstractmethod
    def _take(self, subject: Pending, outcome: OutcomeT, now_s: float) -> None:
        """Note what a step has led to."""

    def _give_up(self, subject: Pending, reason: NotNow) -> None:
        """End what the server breaks over again and again."""
        if isinstance(subject, Item):
            self._finish(subject, failed(subject, "internal_error", str(reason)))

    def _is_due(self, subject: Pending, now_s: float) -> bool:
        return subject.next_s <= now_s and subject not in self._busy

    def _begin(
        self, pool: ThreadPoolExecutor, step: Callable[[], OutcomeT | Later], subject: Pending
    ) -> None:
        self._busy.add(subject)
        self._futures[pool.submit(step)] = subject

    def _take_outcomes(self) -> None:
        if not self._futures:
            self.stop.wait(_FIRST_LOOK_S)
            return
        finished, _ = wait(self._futures, timeout=_REFRESH_S, return_when=FIRST_COMPLETED)
        for future in finished:
            subject = self._futures.pop(future)
            self._busy.discard(subject)
            outcome, now_s = future.result(), time.monotonic()
            if isinstance(outcome, Later):
                self._put_off(subject, outcome.reason, now_s)
                continue
            self._failing_since_s = None
            subject.num_faults = subject.num_delays = 0
            self._take(subject, outcome, now_s)

    def _put_off(self, subject: Pending, reason: NotNow, now_s: float) -> None:
        if self._failing_since_s is None or self._failing_since_s < self.steps.client.part_s:
            self._failing_since_s = now_s
        if now_s - self._failing_since_s > _PATIENCE_S:
            raise ServiceUnavailable(f"Given up for now: {reason}")
        subject.num_faults += reason.is_fault
        if subject.num_faults >= _MAX_FAULTS:
            self._give_up(subject, reason)
            return
        if str(reason) != self._told:
            self._told = str(reason)
            self.view.say(f"waiting: {reason}")
        subject.num_delays += 1
        pause_s = min(_SLOWEST_RETRY_S, 0.5 * 2**subject.num_delays)
        subject.next_s = now_s + max(reason.after_s, pause_s)

    def _look_again(self, subject: Pending, now_s: float) -> None:
        look_s = (now_s - subject.since_s) * _LOOK_GROWTH
        subject.next_s = now_s + min(max(look_s, _FIRST_LOOK_S), _SLOWEST_LOOK_S)

    def _finish(self, item: Item, result: FileResult) -> None:
        del self._active[item]
        is_done = result.status == "completed"
        self.ledger.record(
            item.source,
            self.steps.plan.fingerprint,
            State.DONE if is_done else State.FAILED,
            job_id=result.job_id,
            outputs=result.outputs,
        )
        if is_done:
            self.tally.complete(item.source, result.duration_s or 0.0)
        else:
            self.tally.fail(item.source)
        self.on_result(result)
