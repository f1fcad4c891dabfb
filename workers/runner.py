"""Runs one window batch: settles languages, calls the model, keeps failures apart."""

import time
from collections.abc import Callable, Sequence
from uuid import UUID

import structlog

from adapters.base import Adapter
from adapters.base import Window as AdapterWindow
from adapters.streaming.base import DeltaTranscriber
from core.db import read_session, unit_of_work
from core.errors import CheckpointInvalid, DeviceLost, UnknownLanguage
from core.options import AUTO, MULTI
from core.transcript import SAMPLE_RATE_HZ, Hypothesis
from lifecycle.jobs import fail_job, lock_job
from lifecycle.voters import load_jobs
from lifecycle.windows import lease_of, settle_language
from models import JobStatus
from workers.context import WorkerContext
from workers.gate import ModelGate
from workers.heartbeat import Heartbeat
from workers.held import HeldWindows
from workers.live_text import INTERVAL_S, LiveText
from workers.loaded import LoadedAdapters
from workers.loader import LoadedWindow, WindowBatch
from workers.recognise import transcribe_each
from workers.results import Outcome, ResultWriter
from workers.room import Room
from workers.vote import elect_language

log = structlog.get_logger(__name__)

LIVE_PART_S = 0.5
"""How long a live step waits for a batch: on an accelerator several windows, on a CPU one."""


class BatchRunner:
    """The part of an engine that runs batches; used by one thread.

    While live sessions go on, a batch runs in parts of about `LIVE_PART_S`, at least a window each,
    so that live steps find their turn: a window's transcript does not depend on its batch.
    """

    def __init__(
        self,
        context: WorkerContext,
        *,
        held: HeldWindows,
        loaded: LoadedAdapters,
        results: ResultWriter,
        gate: ModelGate,
        is_live: Callable[[], bool],
    ) -> None:
        self._context = context
        self._gate = gate
        self._is_live = is_live
        self._part_windows = 1
        self._rooms: dict[str, Room] = {}
        self._held = held
        self._loaded = loaded
        self._results = results

    def run(self, batch: WindowBatch) -> list[Outcome]:
        """Run one batch; windows that are not ours any more are dropped before.

        Raises:
            Transient: The checkpoint cannot be loaded now; the claims are given back, as they are
                whatever else keeps it from being loaded.
        """
        for row, error in batch.broken:
            self._results.fail(row.job_id, lease_of(row), error)
        owned = self._held.begin([window.lease for window in batch.windows])
        windows = [window for window in batch.windows if window.row.id in owned]
        if not windows:
            return []
        started = time.monotonic()
        try:
            with self._gate.batch():
                adapter = self._loaded.get(batch.model)
                languages = self._settle_languages(adapter, batch, windows)
        except CheckpointInvalid as exc:
            return [(window, exc) for window in windows]
        except Exception as exc:
            self._held.release([window.lease for window in windows])
            self._context.device.look([exc])
            raise
        windows = self._refuse_unknown(adapter, windows)
        if not windows:
            return []
        asked = [_adapter_window(w, languages.get(w.row.job_id)) for w in windows]
        room = self._rooms.setdefault(batch.model, Room())
        answers = self._transcribe(adapter, windows, asked, room)
        if self._context.device.look(answers):
            # Counted: one of these windows may be what the device does not survive.
            lost = DeviceLost("The accelerator stopped working.")
            answers = [lost if isinstance(answer, Exception) else answer for answer in answers]
        seconds = time.monotonic() - started
        log.info(
            "batch.recognised",
            model=batch.model,
            num_windows=len(windows),
            num_jobs=len({window.row.job_id for window in windows}),
            audio_s=round(sum(len(window.samples) for window in windows) / SAMPLE_RATE_HZ, 1),
            seconds=round(seconds, 2),
        )
        return list(zip(windows, answers, strict=True))

    def _transcribe(
        self,
        adapter: Adapter,
        windows: Sequence[LoadedWindow],
        asked: Sequence[AdapterWindow],
        room: Room,
    ) -> list[Hypothesis | Exception]:
        """Run the model; text of streaming jobs is published meanwhile."""
        live = LiveText(self._context, windows)
        if not (live.is_needed and isinstance(adapter, DeltaTranscriber)):
            return self._run_parts(adapter, asked, room, None)
        with Heartbeat(live.tell, interval_s=INTERVAL_S):
            return self._run_parts(adapter, asked, room, live)

    def _run_parts(
        self,
        adapter: Adapter,
        asked: Sequence[AdapterWindow],
        room: Room,
        listener: LiveText | None,
    ) -> list[Hypothesis | Exception]:
        """Run everything at once, or in parts between which live steps find their turn."""
        answers: list[Hypothesis | Exception] = []
        while len(answers) < len(asked):
            with self._gate.batch():
                is_live = self._is_live()
                part = asked[len(answers) :]
                part = part[: self._part_windows] if is_live else part
                started = time.monotonic()
                answers += transcribe_each(adapter, part, room=room, listener=listener)
            if is_live:
                self._adjust_parts(time.monotonic() - started, num_windows=len(part))
        return answers

    def _adjust_parts(self, seconds: float, *, num_windows: int) -> None:
        """Choose the size of the next part after what the last one took."""
        if seconds > LIVE_PART_S:
            self._part_windows = max(1, num_windows // 2)
        elif seconds < LIVE_PART_S / 2 and num_windows == self._part_windows:
            self._part_windows *= 2

    def _settle_languages(
        self, adapter: Adapter, batch: WindowBatch, windows: Sequence[LoadedWindow]
    ) -> dict[UUID, str | None]:
        """Return the language of each job that asks for it, elected now if it is not known yet."""
        job_ids = {w.row.job_id for w in windows if w.options.language == AUTO}
        if not job_ids:
            return {}
        with read_session(self._context.sessions) as session:
            languages = {
                job_id: job.language for job_id, job in load_jobs(session, job_ids).items()
            }
        voters = {
            str(job_id): heard
            for job_id, heard in batch.voters.items()
            if heard and job_id in job_ids and languages.get(job_id) is None
        }
        elected = elect_language(
            adapter, voters, batch_windows=self._context.settings.batch_windows
        )
        for name, language in elected.items():
            if language is None:
                continue
            with unit_of_work(self._context.sessions) as uow:
                languages[UUID(name)] = settle_language(
                    uow, self._context.publisher, UUID(name), language, now=self._context.now()
                )
            log.info("language.settled", job_id=name, language=language)
        return languages

    def _refuse_unknown(
        self, adapter: Adapter, windows: Sequence[LoadedWindow]
    ) -> list[LoadedWindow]:
        """Fail jobs that ask for a language this checkpoint cannot be forced to."""
        special = (AUTO, MULTI)
        known = [
            window
            for window in windows
            if window.options.language in special or window.options.language in adapter.languages
        ]
        refused = {w.row.job_id: w for w in windows if w not in known}
        for job_id, window in refused.items():
            with unit_of_work(self._context.sessions) as uow:
                job = lock_job(uow.session, job_id)
                if job is not None and job.status == JobStatus.RUNNING:
                    fail_job(
                        uow,
                        self._context.publisher,
                        job,
                        error_code=UnknownLanguage.code,
                        error_message=f"{job.model} does not know {window.options.language!r}.",
                        now=self._context.now(),
                    )
        self._held.drop(window.lease for window in windows if window not in known)
        return known


def _adapter_window(window: LoadedWindow, language: str | None) -> AdapterWindow:
    options = window.options
    if options.language == MULTI:
        language = None
    elif options.language != AUTO:
        language = options.language
    return AdapterWindow(
        key=str(window.row.id),
        samples=window.samples,
        language=language,
        is_language_voted=options.language == AUTO,
        prompt=options.prompt,
        task=options.task,
        timestamps=options.timestamps,
        temperature=options.temperature,
        with_logprobs=options.logprobs,
    )
