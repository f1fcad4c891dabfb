"""An API over real databases, storage and Redis, with a worker that only pretends to listen."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from redis import Redis
from sqlalchemy.orm import Session, sessionmaker

from api.app import create_app
from api.context import ApiContext
from api.hub import EventHub
from api.metrics import Metrics
from core.db import unit_of_work
from core.events import RedisPublisher
from core.settings import Settings
from core.storage import open_storage
from lifecycle.keys import create_key
from tests.integration.api.fakes import FakeWorker, RecordingQueue
from tests.integration.api.servers import Server, serving

MEDIA = Path(__file__).parents[2] / "data" / "media"
SPEECH = MEDIA / "wav_mulaw_8k.wav"


@pytest.fixture
def queue() -> RecordingQueue:
    return RecordingQueue()


@pytest.fixture
def context(
    sessions: sessionmaker[Session],
    settings: Callable[..., Settings],
    queue: RecordingQueue,
    redis_url: str,
) -> ApiContext:
    """The real thing on each database, but for the queue; nobody works."""
    return make_context(sessions, settings(redis_url=redis_url), queue)


@pytest.fixture
def sqlite_context(
    sqlite_sessions: sessionmaker[Session],
    settings: Callable[..., Settings],
    queue: RecordingQueue,
    redis_url: str,
) -> ApiContext:
    """The same on SQLite alone, for what does not depend on the database."""
    return make_context(sqlite_sessions, settings(redis_url=redis_url), queue)


@pytest.fixture
def sqlite_sessions(sqlite_url: str) -> Iterator[sessionmaker[Session]]:
    from core.db import make_engine, make_sessions

    engine = make_engine(sqlite_url)
    yield make_sessions(engine)
    engine.dispose()


def make_context(
    sessions: sessionmaker[Session], settings: Settings, queue: RecordingQueue
) -> ApiContext:
    return ApiContext(
        settings=settings,
        sessions=sessions,
        storage=open_storage(settings.storage),
        queue=queue,
        publisher=RedisPublisher(Redis.from_url(settings.redis), queue),
        hub=EventHub(settings.redis),
        metrics=Metrics(),
    )


def make_key(context: ApiContext, *scopes: str, name: str = "test") -> str:
    with unit_of_work(context.sessions) as uow:
        _row, new = create_key(
            uow, name=name, scopes=scopes or ("submit", "read"), now=datetime.now(UTC)
        )
    return new.secret


def client_of(context: ApiContext, key: str | None) -> TestClient:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return TestClient(create_app(context), headers=headers, raise_server_exceptions=False)


@pytest.fixture
def client(context: ApiContext) -> Iterator[TestClient]:
    with client_of(context, make_key(context)) as client:
        yield client


@pytest.fixture
def sqlite_client(sqlite_context: ApiContext) -> Iterator[TestClient]:
    with client_of(sqlite_context, make_key(sqlite_context)) as client:
        yield client


@pytest.fixture
def worker(sqlite_context: ApiContext, queue: RecordingQueue) -> Iterator[FakeWorker]:
    with FakeWorker(sqlite_context, queue) as worker:
        yield worker


@pytest.fixture
def server(sqlite_context: ApiContext) -> Iterator[Server]:
    """A real uvicorn on a loopback port, with a key."""
    with serving(create_app(sqlite_context)) as url:
        yield Server(url=url, key=make_key(sqlite_context))
