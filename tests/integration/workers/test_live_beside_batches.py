"""Jobs and live sessions on one engine: both get on, and jobs read the same."""

import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from models import JobStatus
from tests.support.pipeline import Pipeline, noise, text_of
from workers.live.host import LiveHost


@pytest.fixture
def sessions(sqlite_url: str):
    """SQLite alone: nothing here depends on the database."""
    from core.db import make_engine, make_sessions

    engine = make_engine(sqlite_url)
    yield make_sessions(engine)
    engine.dispose()


@pytest.mark.parametrize(
    ("patience_s", "sizes"), [(0.0, [1, 1, 1, 1]), (1e9, [1, 2, 1])], ids=["slow", "fast"]
)
def test_while_somebody_speaks_batches_run_in_parts_as_large_as_the_device_is_fast(
    pipeline: Pipeline, submit, job_of, windows_of, *, monkeypatch, patience_s, sizes
) -> None:
    monkeypatch.setattr("workers.runner.LIVE_PART_S", patience_s)
    submit(noise(4.0))
    pipeline.run()
    together = [len(batch) for batch in pipeline.adapter.batches]
    pipeline.adapter.batches.clear()
    monkeypatch.setattr(LiveHost, "is_busy", property(lambda _host: True))
    job_id = submit(noise(4.0, seed=2))
    pipeline.run()

    assert max(together) == 4
    assert [len(batch) for batch in pipeline.adapter.batches][: len(sizes)] == sizes
    assert job_of(job_id).status == JobStatus.COMPLETED
    heard = {text_of(w.samples) for batch in pipeline.adapter.batches for w in batch}
    assert {w.hypothesis["segments"][0]["text"] for w in windows_of(job_id)} == heard


def test_a_live_step_comes_between_two_windows(
    pipeline: Pipeline,
    submit: Callable[..., UUID],
    job_of,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LiveHost, "is_busy", property(lambda _host: True))
    gate = pipeline.engine.live._stepper._gate
    order: list[str] = []
    stepping: list[threading.Thread] = []

    def step() -> None:
        with gate.live():
            order.append("live")

    def hear(_windows) -> None:
        order.append("window")
        if not stepping:
            stepping.append(threading.Thread(target=step))
            stepping[0].start()
            with gate._changed:
                assert gate._changed.wait_for(lambda: gate._num_live_waiting == 1, 30)

    monkeypatch.setattr(pipeline.adapter, "before", hear)
    job_id = submit(noise(3.0))
    pipeline.run()
    stepping[0].join(30)
    assert order[:3] == ["window", "live", "window"]
    assert job_of(job_id).status == JobStatus.COMPLETED
