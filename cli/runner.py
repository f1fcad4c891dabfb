"""Recordings through a server on this machine: upload as a job, wait, fetch, write."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from cli.ledger import State
from cli.run_loop import RunLoop
from cli.steps import FileResult, Gone, Item, Outcome, Pending, Running

MAX_IN_FLIGHT = 32
"""Jobs on the server at once: enough to keep its batches full, few enough that an archive is not
copied to its disk before the first transcript is there."""


@dataclass
class Runner(RunLoop[Outcome]):
    """A job a recording."""

    def _start_steps(self, now_s: float) -> None:
        while self._waiting and len(self._active) < MAX_IN_FLIGHT:
            item = self._waiting.popleft()
            item.since_s = now_s
            self._active[item] = None
            if item.entry is not None:
                item.job_id = item.entry.job_id
        for item in self._active:
            if not self._is_due(item, now_s):
                continue
            if item.job_id is None:
                self.ledger.record(item.source, self.steps.plan.fingerprint, State.SUBMITTING)
                step = partial(self.steps.take, self.steps.upload, item)
                self._begin(self._uploads, step, item)
            else:
                step = partial(self.steps.take, self.steps.look, item)
                self._begin(self._watchers, step, item)

    def _take(self, subject: Pending, outcome: Outcome, now_s: float) -> None:
        if not isinstance(subject, Item):
            raise TypeError(subject)
        if isinstance(outcome, Running):
            self._note_running(subject, outcome.job, now_s)
        elif isinstance(outcome, Gone):
            subject.entry, subject.job_id = None, None
        elif isinstance(outcome, FileResult):
            self._finish(subject, outcome)
            if self.steps.plan.deletes_jobs and outcome.job_id is not None:
                self._watchers.submit(self.steps.delete, outcome.job_id)

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
        self._look_again(item, now_s)
