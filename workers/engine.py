"""The batching engine: one for each adapter in a process."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import structlog
from sqlalchemy.exc import DBAPIError

from adapters.base import Samples, Window
from core.errors import Transient
from core.transcript import SAMPLE_RATE_HZ
from lifecycle.windows import lease_of
from workers.context import WorkerContext
from workers.gate import ModelGate
from workers.heartbeat import Heartbeat
from workers.held import HeldWindows
from workers.live.host import LiveHost
from workers.loaded import LoadedAdapters
from workers.loader import BatchLoader, WindowBatch
from workers.results import ResultWriter
from workers.runner import BatchRunner

log = structlog.get_logger(__name__)


class Engine:
    """Recognises windows of all jobs that use this adapter.

    Three threads share the work of a time slice: one loads the next batch, one runs the model, one
    stores what came out. So the model waits for neither storage nor database.

    Attributes:
        live: The live sessions that share its models; to be started by the process.
    """

    def __init__(
        self, context: WorkerContext, *, adapter: str, models: Sequence[str], name: str
    ) -> None:
        self._context = context
        self._adapter = adapter
        self._held = HeldWindows(context)
        self._loaded = LoadedAdapters(context.catalog)
        self._results = ResultWriter(context, self._held)
        self._model_gate = gate = ModelGate()
        self._default_model = models[0]
        self._preloading = threading.Thread(target=self._preload, name="preload", daemon=True)
        self.live = LiveHost(
            context.settings,
            models=models,
            name=name,
            loaded=self._loaded,
            gate=gate,
            device=context.device,
            stopping=context.stopping,
        )
        self._runner = BatchRunner(
            context,
            held=self._held,
            loaded=self._loaded,
            results=self._results,
            gate=gate,
            is_live=lambda: self.live.is_busy,
        )
        self._loader = BatchLoader(
            context,
            adapter=adapter,
            models=models,
            name=name,
            held=self._held,
            loaded=self._loaded,
        )
        # Two threads that stay: slices may be short, and begin and end a hundred times a second.
        self._load_thread = ThreadPoolExecutor(1, "loader")
        self._write_thread = ThreadPoolExecutor(1, "writer")
        self._gate = threading.Lock()
        self._is_running = False
        self._is_woken = False

    def run(self) -> None:
        """Work until nothing waits or the time slice is over; wakes the next slice if needed.

        A wake-up that comes meanwhile returns at once: the running slice looks again before it
        ends.
        """
        with self._gate:
            self._is_woken = True
            if self._is_running:
                return
            self._is_running = True
        try:
            while self._was_woken():
                self._run_slice()
        finally:
            with self._gate:
                self._is_running = False

    def preload(self) -> None:
        """Begin to load and try the default checkpoint, before anybody waits for it.

        The first batch takes longer than others, on accelerators by seconds: libraries load their
        kernels when these are asked for. So there is one before the first job, unless that is here.
        """
        self._preloading.start()

    def _preload(self) -> None:
        try:
            with self._model_gate.batch():
                adapter = self._loaded.get(self._default_model)
            if not self._is_running:
                with self._model_gate.batch():
                    adapter.transcribe([Window(key="trial", samples=_faint_noise())])
        except Exception as exc:  # noqa: BLE001 - the thread's edge: the first batch meets it too
            log.warning("preload.failed", model=self._default_model, error=str(exc))
            self._context.device.look([exc])

    def release_all(self) -> None:
        """Give back every claim; results of windows in a forward pass will not count."""
        self._held.release()

    def close(self) -> None:
        """End the live sessions and free the device's memory; call it when no slice runs."""
        self.live.stop()
        self._load_thread.shutdown()
        self._write_thread.shutdown()
        if self._preloading.is_alive() or self._context.device.is_lost:
            return  # the process ends; the weights go with it
        self._loaded.close()

    def _was_woken(self) -> bool:
        with self._gate:
            was_woken = self._is_woken and not self._context.stopping.is_set()
            self._is_woken = False
            if not was_woken:
                self._is_running = False  # together with the look, so that no wake-up is lost
            return was_woken

    def _run_slice(self) -> None:
        deadline = time.monotonic() + self._context.settings.time_slice_s
        with Heartbeat(self._held.renew, interval_s=self._context.heartbeat_s):
            try:
                is_unfinished = self._run_batches(deadline)
            except (Transient, DBAPIError) as exc:
                # Nothing is lost: claims are given back or expire, and the sweeper wakes us again.
                log.warning("slice.broken_off", adapter=self._adapter, error=str(exc))
                return
            finally:
                self._held.forget()
        if is_unfinished:
            self._context.queue.wake(self._adapter)

    def _run_batches(self, deadline: float) -> bool:
        """Return whether the time was over before the work was."""
        batch = self._loader.next_batch()
        if batch is None:
            return False
        ahead: Future[WindowBatch | None] = self._load_thread.submit(_nothing)
        stored = self._write_thread.submit(_nothing)
        try:
            while batch is not None:
                # A window under suspicion runs while no other claim is at risk with it.
                ahead = self._load_thread.submit(
                    _nothing if batch.is_isolated else self._loader.next_batch
                )
                outcomes = self._runner.run(batch)
                stored.result()
                stored = self._write_thread.submit(self._results.store, outcomes)
                if self._context.stopping.is_set() or time.monotonic() >= deadline:
                    return True
                batch = ahead.result()
                if batch is None:
                    stored.result()  # a window that failed waits again only once that is written
                    batch = self._loader.next_batch()
            return False
        finally:
            self._put_back(ahead)
            stored.result()

    def _put_back(self, ahead: Future[WindowBatch | None]) -> None:
        batch = ahead.result() if ahead.exception() is None else None
        if batch is not None:
            rows = [window.row for window in batch.windows] + [row for row, _ in batch.broken]
            self._held.release([lease_of(row) for row in rows])


def _faint_noise() -> Samples:
    """Return a second of what no adapter takes for silence, which some do not show their model."""
    noise: Samples = np.random.default_rng(0).standard_normal(SAMPLE_RATE_HZ, np.float32)
    return noise * np.float32(0.01)


def _nothing() -> None:
    """Stand in for work that is not wanted."""
