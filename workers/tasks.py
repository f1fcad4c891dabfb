"""Messages to calls, nothing else."""

from collections.abc import Callable
from uuid import UUID

from celery import Celery

from core.queues import DELIVER, FINISH, PREPARE, RECOGNISE, SWEEP, TIDY, CeleryQueue
from workers.deliver import Deliverer
from workers.finish import finish
from workers.prepare import prepare
from workers.process import WorkerProcess
from workers.sweep import sweep, tidy


def register_tasks(app: Celery, process: WorkerProcess) -> None:
    """Give the app the tasks that `core.queues` names.

    To add one: name it there, and call what it does here.
    """

    def prepare_job(job_id: str) -> None:
        prepare(process.context, UUID(job_id))

    def recognise_windows(adapter: str) -> None:
        engine = process.get_engine(adapter)
        if engine is not None:
            engine.run()

    def finish_job(job_id: str) -> None:
        finish(process.context, UUID(job_id))

    def sweep_lost_work() -> None:
        sweep(process.context, CeleryQueue(app))

    def tidy_storage() -> None:
        tidy(process.context)

    def deliver_webhooks() -> None:
        Deliverer(process.context.sessions, process.settings).run()

    calls: dict[str, Callable[..., None]] = {
        PREPARE: prepare_job,
        RECOGNISE: recognise_windows,
        FINISH: finish_job,
        SWEEP: sweep_lost_work,
        TIDY: tidy_storage,
        DELIVER: deliver_webhooks,
    }
    for name, call in calls.items():
        app.task(call, name=name)
