"""The Celery app of worker processes and of beat."""

from celery import Celery, signals

from core.queues import MAINTENANCE_QUEUE, SWEEP, TIDY, make_celery
from core.settings import Settings
from workers.process import WorkerProcess
from workers.tasks import register_tasks

TIDY_S = 600.0


def make_worker_app(settings: Settings, process: WorkerProcess) -> Celery:
    """Return an app whose tasks work in `process`."""
    app = make_celery(settings.redis)
    register_tasks(app, process)
    signals.setup_logging.connect(_keep_logging, weak=False)
    return app


def make_beat_app(settings: Settings) -> Celery:
    """Return an app that knows the schedule and no tasks.

    A tick that nobody took before the next one is dropped, so that a day without a maintenance
    worker leaves no day's worth of sweeps.
    """
    app = make_celery(settings.redis)
    app.conf.beat_schedule = {
        task: {
            "task": task,
            "schedule": every_s,
            "options": {"queue": MAINTENANCE_QUEUE, "expires": max(2 * every_s, 30.0)},
        }
        for task, every_s in ((SWEEP, settings.sweep_s), (TIDY, TIDY_S))
    }
    app.conf.beat_scheduler = "celery.beat:Scheduler"  # in memory: nothing to remember
    app.conf.beat_max_loop_interval = settings.sweep_s
    signals.setup_logging.connect(_keep_logging, weak=False)
    return app


def _keep_logging(**_kwargs: object) -> None:
    """Be connected: Celery then leaves the logging that `core.logging` set up alone."""
