"""What the HTTP process works with, built once and handed to every request."""

from dataclasses import dataclass, field

from anyio import CapacityLimiter
from sqlalchemy.orm import Session, sessionmaker

from api.hub import EventHub
from api.limits import NoLimiter, RequestLimiter
from api.metrics import Metrics
from api.openai.waiters import Waiters
from core.events import Publisher
from core.queues import JobQueue
from core.settings import Settings
from core.storage.base import Storage
from lifecycle.intake import Intake

UPLOAD_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The services behind the routes.

    Attributes:
        hub: The one Redis subscription of this process.
        upload_threads: Bounds blocking work of uploads, so that slow storage cannot take the
            threads that answer everybody else.
        waiters: Requests that wait for one answer.
        limiter: Counts requests of keys that have a limit.
    """

    settings: Settings
    sessions: sessionmaker[Session]
    storage: Storage
    queue: JobQueue
    publisher: Publisher
    hub: EventHub
    metrics: Metrics
    limiter: RequestLimiter = field(default_factory=NoLimiter)
    waiters: Waiters = field(default_factory=Waiters)
    upload_threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(UPLOAD_THREADS))

    @property
    def intake(self) -> Intake:
        """What taking jobs in needs."""
        return Intake(
            settings=self.settings,
            sessions=self.sessions,
            storage=self.storage,
            queue=self.queue,
            publisher=self.publisher,
        )
