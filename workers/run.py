"""Starts a worker or a beat process and ends it in order."""

import os
import sys
import threading
from collections.abc import Sequence

import structlog
from celery import signals
from celery.utils.nodenames import host_format

from adapters.device import check_device
from core.audio.spawn import warm_up
from core.logging import configure_logging
from core.queues import DELIVERY_QUEUE, MAINTENANCE_QUEUE, MEDIA_QUEUE, asr_queue
from core.settings import Settings
from workers.app import make_beat_app, make_worker_app
from workers.catalog import FolderCatalog, models_by_adapter
from workers.process import WorkerProcess

log = structlog.get_logger(__name__)

STOP_GRACE_S = 8.0
"""How long the work of the moment may take to end after SIGTERM. Supervisors wait 10 s and more."""

DEVICE_LOST = 1
"""Exit code of a worker whose accelerator is lost: some supervisors restart failures only."""

MEDIA_THREADS = 3
"""One of them is kept free of long recordings; see `workers.lanes`."""


def default_queues(settings: Settings) -> list[str]:
    """Return everything this machine can do; may have to fetch checkpoints."""
    adapters = models_by_adapter(FolderCatalog(settings))
    return [*map(asr_queue, adapters), MEDIA_QUEUE, DELIVERY_QUEUE, MAINTENANCE_QUEUE]


def run_worker(
    settings: Settings,
    *,
    queues: Sequence[str] | None = None,
    name: str | None = None,
    concurrency: int | None = None,
) -> int:
    """Work until SIGTERM or SIGINT; return the exit code.

    All pools are threads: models do not survive a fork, hostile media is decoded in processes of
    its own (`core.audio.decode`), and one process a role costs least memory.

    Args:
        queues: Default: `default_queues`.
        concurrency: Messages worked on at once; default: one an engine, and a few for the rest.

    Raises:
        DeviceMissing: It is to recognise on a GPU that is not there.
    """
    configure_logging(settings.log_level, settings.log_format)
    queues = list(queues or default_queues(settings))
    prefix = asr_queue("")
    adapters = [queue.removeprefix(prefix) for queue in queues if queue.startswith(prefix)]
    has_others = len(adapters) < len(queues)
    if adapters:
        check_device(settings.device)  # missing, it fails here and not in every job
    name = name or "worker"
    concurrency = concurrency or len(adapters) + (MEDIA_THREADS if has_others else 0)
    num_long_media = max(1, concurrency - len(adapters) - 1)
    process = WorkerProcess(settings, name=name, num_long_media=num_long_media)
    app = make_worker_app(settings, process)
    worker = app.Worker(
        hostname=host_format(f"{name}@%h"),
        queues=queues,
        pool="threads",
        concurrency=concurrency,
        without_gossip=True,
        without_mingle=True,
        loglevel=settings.log_level.upper(),
    )
    stopper = _Stopper(process)
    signals.worker_shutting_down.connect(stopper.on_shutdown, weak=False)
    log.info("worker.started", queues=queues, name=name)
    try:
        if MEDIA_QUEUE in queues:
            warm_up()
        process.start_engines(adapters)
        worker.start()
    finally:
        stopper.cancel()
        process.close()
    log.info("worker.stopped")
    return DEVICE_LOST if process.device.is_lost else int(worker.exitcode or 0)


def run_beat(settings: Settings) -> None:
    """Send the scheduled messages until SIGTERM or SIGINT."""
    configure_logging(settings.log_level, settings.log_format)
    app = make_beat_app(settings)
    app.Beat(loglevel=settings.log_level.upper(), quiet=True).run()


class _Stopper:
    """Makes a shutdown take seconds, whatever the work of the moment is."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._is_ending = False
        self._timer = threading.Timer(STOP_GRACE_S, self._give_up)
        self._timer.daemon = True

    def on_shutdown(self, **_kwargs: object) -> None:
        """Ask everything to end; Celery calls it when a signal arrives."""
        self._process.stopping.set()
        if not self._is_ending:
            self._is_ending = True
            self._timer.start()

    def cancel(self) -> None:
        """Everything has ended in time."""
        self._timer.cancel()

    def _give_up(self) -> None:
        """A forward pass cannot be interrupted: give the claims back and end without it."""
        try:
            self._process.release_all()
        finally:
            log.warning("worker.cut_short")
            sys.stderr.flush()
            os._exit(DEVICE_LOST if self._process.device.is_lost else 0)
