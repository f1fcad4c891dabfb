import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import soundfile

from api.app import create_app
from lifecycle import uploads
from tests.integration.api.conftest import make_key
from tests.integration.batches.conftest import make_stack
from tests.integration.cli.service import Service, Watched
from tests.support.pipeline import wav

KENNEDY = Path(__file__).parents[3] / "samples" / "en_kennedy.flac"
PART_BYTES = 64 << 10
PARTS_A_FILE = 4


@pytest.fixture
def service(sqlite_url, tmp_path, redis_url, monkeypatch) -> Iterator[Service]:
    """A server whose uploads come in parts of 64 KiB."""
    from core.db import make_engine, make_sessions

    monkeypatch.setattr(uploads, "ONE_PUT_BYTES", 2 * PART_BYTES)
    monkeypatch.setattr(uploads, "PART_BYTES", PART_BYTES)
    engine = make_engine(sqlite_url)
    with make_stack(make_sessions(engine), tmp_path, redis_url) as stack:
        stack.pipeline.clock.at = datetime.now(UTC)
        watched = Watched(create_app(stack.context))
        made = Service(stack=stack, watched=watched, key=make_key(stack.context))
        made.is_working.set()
        worker = threading.Thread(target=made.work)
        worker.start()
        made.start()
        try:
            yield made
        finally:
            made.end()
            worker.join(timeout=30)
    engine.dispose()
    assert not worker.is_alive()


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a folder of recordings, each of four parts."""

    def make(num_files: int) -> Path:
        folder = tmp_path / "archive"
        folder.mkdir()
        speech, _ = soundfile.read(KENNEDY, frames=7 * 16_000, dtype="float32")
        for number in range(num_files):
            (folder / f"{number}.wav").write_bytes(wav(speech * (1 - number / 50)))
        return folder

    return make
