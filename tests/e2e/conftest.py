"""One stack for many tests, in both forms: all embedded, and on real services.

The two forms run the same tests. What a test breaks the stack itself must mend, so that sharing it
is part of the test.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from tests.support.stack import Stack, environment, fetch_checkpoint
from tests.support.valkey import ValkeyServer

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
KENNEDY = SAMPLES / "en_kennedy.flac"

SPEECH = ROOT / "tests/data/speech"

NUM_WINDOWS = 5
RATE_HZ = 16_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests the time that a busy machine needs; `wait_for` has limits of its own.

    Tests that share a stack run in one process (`--dist loadgroup`), the others where there is
    room.
    """
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(900))
        form = item.callspec.params.get("stack") if hasattr(item, "callspec") else None
        if form is not None:
            item.add_marker(pytest.mark.xdist_group(form))


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The default checkpoint's folder."""
    return fetch_checkpoint()


@pytest.fixture(scope="session")
def base_env(checkpoint: Path) -> dict[str, str]:
    """An environment in which lost work is found soon and progress is fine-grained."""
    return environment(
        SCRIPTORIUM_MODELS=f"whisper-base={checkpoint}",
        SCRIPTORIUM_LEASE_S="3",
        SCRIPTORIUM_SWEEP_S="1",
        SCRIPTORIUM_BATCH_WINDOWS="1",
        SCRIPTORIUM_TIME_SLICE_S="600",
        # With two threads beside a busy neighbour torch is five times slower than with one.
        SCRIPTORIUM_THREADS="1",
    )


@pytest.fixture(scope="session", params=["embedded", "services"])
def stack(
    request: pytest.FixtureRequest,
    base_env: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """A running stack, shared by the session."""
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as cleanup:
        if request.param == "embedded":
            made = Stack(data=folder / "data", env=base_env)
        else:
            made = _on_services(request, base_env, folder, cleanup)
        cleanup.callback(_check_end, made)
        yield made


def _on_services(
    request: pytest.FixtureRequest, base_env: dict[str, str], folder: Path, cleanup: ExitStack
) -> Stack:
    from tests.support.swift import BUCKET

    postgres = request.getfixturevalue("postgres_server")
    s3 = request.getfixturevalue("s3_server")
    database_url = cleanup.enter_context(postgres.empty_database())
    # Its own, not the session's: these tests restart it.
    valkey = cleanup.enter_context(ValkeyServer(folder / "valkey"))
    env = base_env | {
        "SCRIPTORIUM_DATABASE_URL": database_url,
        "SCRIPTORIUM_REDIS_URL": valkey.url,
        "SCRIPTORIUM_STORAGE_URL": f"s3://{BUCKET}/{uuid4().hex}",
        "SCRIPTORIUM_S3_ENDPOINT_URL": s3.endpoint_url,
        **s3.environment,
    }

    def restart_redis() -> None:
        valkey.crash()
        valkey.start()

    return Stack(
        data=folder / "data", env=env, database_url=database_url, restart_redis=restart_redis
    )


def _check_end(stack: Stack) -> None:
    assert stack.stop() == 0, stack.process.tail()
    assert stack.leftovers() == []


@pytest.fixture
def start(base_env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Return a function that starts an embedded stack of this test's own."""
    with ExitStack() as cleanup:

        def make(name: str = "data", *, key: str | None = None) -> Stack:
            made = Stack(data=tmp_path / name, env=base_env, key=key)
            cleanup.callback(made.process.stop)
            return made

        yield make


@pytest.fixture(scope="session")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two and a half minutes: the same three sentences again and again.

    A round takes 29.4 s with its last pause, so that each fills a window of 30 s. (The same
    sentence twice in a window would look like a loop of the model's.)
    """
    second = np.zeros(RATE_HZ, np.float32)
    rounds = [_read(KENNEDY), second, _read(SPEECH / "librivox_0920.flac"), second]
    rounds += [_read(SPEECH / "librivox_0890.flac"), *[second] * 5]
    path = tmp_path_factory.mktemp("recordings") / "long speech äöü.flac"
    soundfile.write(path, np.concatenate(rounds * NUM_WINDOWS), RATE_HZ)
    return path


@pytest.fixture(scope="session")
def quiet_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sentence and half an hour of faint noise: long to decode, short to recognise."""
    speech = _read(KENNEDY)
    noise = np.random.default_rng(7).normal(0, 1e-4, 30 * 60 * RATE_HZ).astype(np.float32)
    path = tmp_path_factory.mktemp("recordings") / "quiet.flac"
    soundfile.write(path, np.concatenate([noise, speech]), RATE_HZ)
    return path


def _read(path: Path) -> np.ndarray:
    samples, rate_hz = soundfile.read(path, dtype="float32")
    assert rate_hz == RATE_HZ
    return samples
