"""What a worker process works with, built once and handed to every piece of work."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session, sessionmaker

from core.db import make_engine, make_sessions
from core.events import Publisher, RedisPublisher, connect_redis
from core.queues import CeleryQueue, JobQueue, make_celery
from core.settings import Settings
from core.storage import Storage, open_storage
from workers.catalog import Catalog, FolderCatalog
from workers.device import DeviceWatch


def utc_now() -> datetime:
    """Return the present instant."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The services behind the tasks.

    Attributes:
        stopping: Set once the process should end; long work looks at it and gives up its claims.
        device: Says whether the accelerator still works.
        long_media: Places for recordings that take long to prepare; see `workers.lanes`.
        give_up: What gives the claim of each piece of work under way back, by any hashable name.
        now: The clock.
    """

    settings: Settings
    sessions: sessionmaker[Session]
    storage: Storage
    queue: JobQueue
    publisher: Publisher
    catalog: Catalog
    device: DeviceWatch
    stopping: threading.Event = field(default_factory=threading.Event)
    long_media: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))
    give_up: dict[object, Callable[[], None]] = field(default_factory=dict)
    now: Callable[[], datetime] = utc_now

    @property
    def lease(self) -> timedelta:
        """How long a claim is valid."""
        return timedelta(seconds=self.settings.lease_s)

    @property
    def heartbeat_s(self) -> float:
        """How often a claim is renewed: two may fail before the lease is lost."""
        return self.settings.lease_s / 3


def make_context(
    settings: Settings,
    *,
    device: DeviceWatch,
    stopping: threading.Event,
    num_long_media: int,
) -> WorkerContext:
    """Connect to everything `settings` names; nothing is asked of it yet."""
    queue = CeleryQueue(make_celery(settings.redis))
    return WorkerContext(
        settings=settings,
        sessions=make_sessions(make_engine(settings.database, sealer=settings.sealer)),
        storage=open_storage(settings.storage, s3_endpoint_url=settings.s3_endpoint_url),
        queue=queue,
        publisher=RedisPublisher(connect_redis(settings.redis), queue),
        catalog=FolderCatalog(settings),
        device=device,
        stopping=stopping,
        long_media=threading.Semaphore(num_long_media),
    )
