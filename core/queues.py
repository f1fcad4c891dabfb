"""Names of tasks and queues, and how a process that imports no worker sends a message."""

from typing import Protocol
from uuid import UUID

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

PREPARE = "workers.tasks.prepare"
RECOGNISE = "workers.tasks.recognise"
FINISH = "workers.tasks.finish"
SWEEP = "workers.tasks.sweep"
TIDY = "workers.tasks.tidy"
DELIVER = "workers.tasks.deliver"
EXPAND = "workers.tasks.expand"

PRIORITY_STEP = 3
LOWEST_PRIORITY = 9
"""Redis queues know the priorities 0 to 9, of which kombu tells 0, 3, 6 and 9 apart; ours (0, 10,
20 …) become 0, 3, 6 ….

Source: kombu 5.7, transport/redis.py, `PRIORITY_STEPS`.
"""

MEDIA_QUEUE = "media"
DELIVERY_QUEUE = "delivery"
MAINTENANCE_QUEUE = "maintenance"


def asr_queue(adapter: str) -> str:
    """Return the queue that wakes workers of `adapter`."""
    return f"asr.{adapter}"


class JobQueue(Protocol):
    """Nudges for workers. Losing one delays work until the sweeper, never loses it.

    No method raises: they run after the commit, when the caller's work is already durable.
    """

    def prepare(self, job_id: UUID, *, priority: int) -> None:
        """Ask a media worker to decode and cut the job."""
        ...

    def wake(self, adapter: str, *, count: int = 1) -> None:
        """Say that there are windows for `adapter`, so that up to `count` workers hear it."""
        ...

    def finish(self, job_id: UUID) -> None:
        """Ask a media worker to stitch the job."""
        ...

    def deliver(self) -> None:
        """Say that webhook deliveries are due."""
        ...

    def expand(self, batch_id: UUID) -> None:
        """Ask for the next jobs of a batch's manifest."""
        ...


class CeleryQueue:
    """Sends by task name through a Celery app that knows no tasks."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def warm_up(self) -> None:
        """Import what Celery and kombu put off until the first message; nothing is sent.

        Whoever sends that message would wait for it: 0.1 to 0.3 s.
        """
        app = self._app
        with app.connection_for_write() as connection:
            connection.get_transport_cls()
        for name in ("amqp", "events", "AsyncResult"):
            getattr(app, name)

    def prepare(self, job_id: UUID, *, priority: int) -> None:
        """See `JobQueue`."""
        self._send(PREPARE, MEDIA_QUEUE, str(job_id), priority=priority)

    def wake(self, adapter: str, *, count: int = 1) -> None:
        """See `JobQueue`; messages that already wait count, so the queue never grows past that."""
        queue = asr_queue(adapter)
        depth = self._find_depth(queue)
        if depth is not None:
            for _ in range(count - depth):
                self._send(RECOGNISE, queue, adapter)

    def finish(self, job_id: UUID) -> None:
        """See `JobQueue`."""
        self._send(FINISH, MEDIA_QUEUE, str(job_id))

    def deliver(self) -> None:
        """See `JobQueue`."""
        self._send(DELIVER, DELIVERY_QUEUE)

    def expand(self, batch_id: UUID) -> None:
        """See `JobQueue`."""
        self._send(EXPAND, MAINTENANCE_QUEUE, str(batch_id))

    def depth(self, queue: str) -> int:
        """Return how many messages wait in `queue`; 0 if the broker does not answer."""
        return self._find_depth(queue) or 0

    def _find_depth(self, queue: str) -> int | None:
        try:
            with self._app.pool.acquire(block=True) as connection:
                return int(connection.default_channel._size(queue))  # noqa: SLF001 - kombu's sum over priorities
        except (OperationalError, RedisError, OSError) as exc:
            log.warning("broker.silent", queue=queue, error=str(exc))
            return None

    def _send(self, task: str, queue: str, *args: str, priority: int = 0) -> None:
        try:
            self._app.send_task(
                task,
                args=args,
                queue=queue,
                priority=min(priority // PRIORITY_STEP, LOWEST_PRIORITY),
                ignore_result=True,
                retry=False,
            )
        except (OperationalError, OSError) as exc:
            log.warning("message.dropped", task=task, queue=queue, error=str(exc))


def broker_url(redis_url: str) -> str:
    """Return kombu's spelling of a Redis URL (`unix://` is `redis+socket://` there)."""
    return redis_url.replace("unix://", "redis+socket://", 1)


def make_celery(redis_url: str) -> Celery:
    """Return an app configured for wake-ups over Redis.

    The database is the truth: results are ignored, a message is acknowledged late and restored
    when its consumer dies, and the visibility timeout lies far above the longest time slice.
    """
    app = Celery("scriptorium", broker=broker_url(redis_url), set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=2,
        broker_transport_options={
            "visibility_timeout": 6 * 3600,
            "unacked_restore_interval": 5,
            "socket_keepalive": True,
            "socket_connect_timeout": 2,
            "socket_timeout": None,
            "queue_order_strategy": "priority",
        },
    )
    return app
