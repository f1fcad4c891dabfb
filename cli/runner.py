"""Takes recordings through a server: upload, wait, fetch, write; many at a time."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from cli.client import NotNow
from cli.ledger import Ledger, State
from cli.progress import ProgressView, Tally
from cli.steps import FileResult, Gone, Item, Later, Outcome, Running, Steps, failed
from cli.waiting import Stopped
from core.errors import ServiceUnavailable

NUM_UPLOADS = 4
MAX_IN_FLIGHT = 32
"""Jobs on the server at once: enough to keep its batches full, few enough that an archive is not
copied to its disk before the first transcript is there."""

_NUM_WATCHERS = 4
_FIRST_LOOK_S = 0.2
_SLOWEST_LOOK_S = 2.0
_LOOK_GROWTH = 0.1
"""A job is looked at after a tenth of the time that it has taken so far, within the two limits."""

_REFRESH_S = 0.25
_PATIENCE_S = 300.0
"""Without a good answer to anything for so long, the run is given up; the next one goes on."""

_SLOWEST_RETRY_S = 30.0
_MAX_FAULTS = 3


@dataclass
class Runner:
    """One run; `run` blocks until every item has a result.

    Attributes:
        on_result: Called in this thread for each item.
    """

    steps: Steps
    ledger: Ledger
    tally: Tally
    view: ProgressView
    stop: threading.Event
    on_result: Callable[[FileResult], None]
    _waiting: deque[Item] = field(default_factory=deque)
    _active: list[Item] = field(default_factory=list)
    _futures: dict[Future[Outcome], Item] = field(default_factory=dict)
    _heard_s: float = 0.0
    _told: str = ""

    def run(self, items: Sequence[Item]) -> None:
        """Take `items` through the server.

        Raises:
            Stopped: The stop event was set; what is done is in the ledger.
            ServiceUnavailable: The server has not answered for minutes.
            Unauthenticated: The key is wrong.
        """
        self._waiting.extend(items)
        self._heard_s = time.monotonic()
        uploads = ThreadPoolExecutor(NUM_UPLOADS, thread_name_prefix="upload")
        watchers = ThreadPoolExecutor(_NUM_WATCHERS, thread_name_prefix="watch")
        try:
            while self._waiting or self._active:
                if self.stop.is_set():
                    raise Stopped
                self._start_uploads(uploads)
                self._look_at_due(watchers)
                self._take_outcomes(watchers)
                self.view.refresh()
        finally:
            for pool in (uploads, watchers):
                pool.shutdown(cancel_futures=self.stop.is_set())

    def _start_uploads(self, pool: ThreadPoolExecutor) -> None:
        now_s = time.monotonic()
        while self._waiting and len(self._active) < MAX_IN_FLIGHT:
            item = self._waiting.popleft()
            item.since_s = now_s
            self._active.append(item)
            if item.entry is not None and item.entry.job_id is not None:
                item.job_id = item.entry.job_id
                continue
            self._submit(pool, item)
        for item in self._active:
            if item.job_id is None and item.next_s <= now_s and not self._is_busy(item):
                self._submit(pool, item)

    def _submit(self, pool: ThreadPoolExecutor, item: Item) -> None:
        if not self._is_busy(item):
            self.ledger.record(item.source, self.steps.plan.fingerprint, State.SUBMITTING)
            self._futures[pool.submit(self.steps.take, self.steps.upload, item)] = item

    def _look_at_due(self, pool: ThreadPoolExecutor) -> None:
        now_s = time.monotonic()
        for item in self._active:
            if item.job_id is not None and item.next_s <= now_s and not self._is_busy(item):
                self._futures[pool.submit(self.steps.take, self.steps.look, item)] = item

    def _is_busy(self, item: Item) -> bool:
        return any(busy is item for busy in self._futures.values())

    def _take_outcomes(self, watchers: ThreadPoolExecutor) -> None:
        if not self._futures:
            self.stop.wait(_FIRST_LOOK_S)
            return
        finished, _ = wait(self._futures, timeout=_REFRESH_S, return_when=FIRST_COMPLETED)
        for future in finished:
            item = self._futures.pop(future)
            self._apply(item, future.result(), watchers)

    def _apply(self, item: Item, outcome: Outcome, watchers: ThreadPoolExecutor) -> None:
        now_s = time.monotonic()
        if isinstance(outcome, Later):
            self._put_off(item, outcome.reason, now_s)
            return
        self._heard_s, item.num_faults, item.num_delays = now_s, 0, 0
        if isinstance(outcome, Running):
            self._note_running(item, outcome.job, now_s)
        elif isinstance(outcome, Gone):
            item.entry, item.job_id = None, None
        else:
            self._finish(item, outcome, watchers)

    def _put_off(self, item: Item, reason: NotNow, now_s: float) -> None:
        if now_s - self._heard_s > _PATIENCE_S:
            raise ServiceUnavailable(f"Given up for now: {reason}")
        item.num_faults += reason.is_fault
        if item.num_faults >= _MAX_FAULTS:
            self._finish(item, failed(item, "internal_error", str(reason)), None)
            return
        if str(reason) != self._told:
            self._told = str(reason)
            self.view.say(f"waiting: {reason}")
        item.num_delays += 1
        item.next_s = now_s + max(reason.after_s, min(_SLOWEST_RETRY_S, 0.5 * 2**item.num_delays))

    def _note_running(self, item: Item, job: dict[str, Any], now_s: float) -> None:
        if item.job_id is None or item.entry is not None:
            item.job_id, item.entry = job["id"], None
            self.ledger.record(
                item.source, self.steps.plan.fingerprint, State.SUBMITTED, job_id=item.job_id
            )
        duration_s, progress = job["duration_s"], job["progress"]
        if duration_s is not None:
            self.tally.learn(item.source, duration_s)
            if progress["audio_s_total"] > 0:
                part = progress["audio_s_done"] / progress["audio_s_total"]
                self.tally.advance(item.source, duration_s * part)
        look_s = (now_s - item.since_s) * _LOOK_GROWTH
        item.next_s = now_s + min(max(look_s, _FIRST_LOOK_S), _SLOWEST_LOOK_S)

    def _finish(self, item: Item, result: FileResult, watchers: ThreadPoolExecutor | None) -> None:
        self._active.remove(item)
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
        if self.steps.plan.deletes_jobs and result.job_id is not None and watchers is not None:
            watchers.submit(self.steps.delete, result.job_id)
        self.on_result(result)
