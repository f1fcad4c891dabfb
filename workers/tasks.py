"""Messages to calls, nothing else."""

from collections.abc import Callable
from uuid import UUID

from celery import Celery

from core.queues import DELIVER, EXPAND, FINISH, PREPARE, RECOGNISE, SWEEP, TIDY, CeleryQueue
from workers.deliver import Deliverer
from workers.expand import expand
from workers.finish import finish
from workers.prepare import prepare
from workers.process import WorkerProcess
from workers.sweep import sweep, tidy


class Tasks:
    """What each message of `core.queues` does here.

    To add one: name it there, write its method, register it below.
    """

    def __init__(self, app: Celery, process: WorkerProcess) -> None:
        self._app = app
        self._process = process

    def prepare(self, job_id: str) -> None:
        """Decode and cut a job."""
        prepare(self._process.context, UUID(job_id))

    def recognise(self, adapter: str) -> None:
        """Work on whatever waits for an adapter."""
        engine = self._process.get_engine(adapter)
        if engine is not None:
            engine.run()

    def finish(self, job_id: str) -> None:
        """Stitch a job."""
        finish(self._process.context, UUID(job_id))

    def sweep(self) -> None:
        """Look for lost work."""
        sweep(self._process.context, CeleryQueue(self._app))

    def tidy(self) -> None:
        """Look for objects that nobody needs."""
        tidy(self._process.context)

    def expand(self, batch_id: str) -> None:
        """Make the next jobs of a batch."""
        expand(self._process.context, UUID(batch_id))

    def deliver(self) -> None:
        """Make due attempts at webhooks."""
        Deliverer(self._process.context.sessions, self._process.settings).run()


def register_tasks(app: Celery, process: WorkerProcess) -> None:
    """Give the app the tasks that `core.queues` names."""
    tasks = Tasks(app, process)
    calls: dict[str, Callable[..., None]] = {
        PREPARE: tasks.prepare,
        RECOGNISE: tasks.recognise,
        FINISH: tasks.finish,
        SWEEP: tasks.sweep,
        TIDY: tasks.tidy,
        DELIVER: tasks.deliver,
        EXPAND: tasks.expand,
    }
    for name, call in calls.items():
        app.task(call, name=name)
