"""A real API and the live half of a real worker over a real Redis; only the model is made up."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest
import soundfile
from redis import Redis
from websockets.exceptions import InvalidStatus

from api.app import create_app
from core.db import make_engine, make_sessions
from core.settings import Settings
from tests.integration.api.conftest import make_context, make_key
from tests.integration.api.fakes import RecordingQueue
from tests.integration.api.servers import Server, serving
from tests.support.live import Ear, LiveClient, live_client, live_host
from tests.support.pipeline import MODEL
from tests.support.processes import wait_for
from tests.unit.test_docs import ROOT
from workers.live.host import LiveHost

SPEECH = ROOT / "tests" / "data" / "clips" / "qwen3" / "01_english_2s.flac"


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Ear:
    """The model that every live host hears with."""
    ear = Ear()
    monkeypatch.setattr("workers.live.stepper.start_streaming", lambda _adapter: ear)
    return ear


@pytest.fixture
def speech() -> np.ndarray:
    """1.6 s of speech and 1 s of silence, at 16 kHz."""
    return np.concatenate((read_speech(), np.zeros(16_000, np.float32)))


def read_speech() -> np.ndarray:
    """Return 1.6 s of speech at 16 kHz."""
    samples, _ = soundfile.read(SPEECH, dtype="float32")
    return samples


class Live:
    """A server, and workers and clients of it."""

    def __init__(self, cleanup: ExitStack, settings: Settings, sqlite_url: str) -> None:
        self._cleanup = cleanup
        self.settings = settings
        self.hosts: list[LiveHost] = []
        self.redis = Redis.from_url(settings.redis)
        cleanup.callback(self.redis.close)
        engine = make_engine(sqlite_url)
        cleanup.callback(engine.dispose)
        self.context = make_context(make_sessions(engine), settings, RecordingQueue())
        url = cleanup.enter_context(serving(create_app(self.context)))
        self.server = Server(url=url, key=make_key(self.context))

    def work(self) -> None:
        """Start another worker."""
        name = f"worker {len(self.hosts)}"
        self.hosts.append(self._cleanup.enter_context(live_host(self.settings, name=name)))

    def connect(self, **options) -> LiveClient:
        options.setdefault("key", self.server.key)
        return self._cleanup.enter_context(live_client(self.server.url, **options))

    def wait_until_gone(self) -> None:
        """Wait until no session is open."""
        wait_for(lambda: not self.kept(), what="no session is open")

    def wait_until_connects(self) -> None:
        """Wait until the server has room for a session again."""

        def connects() -> bool:
            try:
                return self.connect().receive()["type"] == "session.created"
            except InvalidStatus:
                return False

        wait_for(connects, what="there is room again")

    def kept(self) -> list[str]:
        """Return the names of what live sessions have in Redis, but for hints to workers."""
        names = [key.decode() for key in self.redis.keys("live:*")]
        return sorted(name for name in names if not name.startswith("live:wake:"))


@pytest.fixture
def start(
    ear: Ear, settings: Callable[..., Settings], sqlite_url: str, redis_url: str
) -> Iterator[Callable[..., Live]]:
    """Return a function that starts a server with settings of its own."""
    with ExitStack() as cleanup:

        def make(**overrides) -> Live:
            chosen = {"models": f"{MODEL}=/nowhere", "redis_url": redis_url, "live_lease_s": 60}
            return Live(cleanup, settings(**{**chosen, **overrides}), sqlite_url)

        yield make


@pytest.fixture
def live(start: Callable[..., Live]) -> Live:
    """A server with one worker."""
    live = start()
    live.work()
    return live
