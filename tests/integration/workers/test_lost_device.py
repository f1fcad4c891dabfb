"""A GPU that stops working ends its worker, and no job with it."""

import signal
import threading
from dataclasses import replace

import pytest

from core.db import read_session
from core.errors import TokenLimitReached
from core.options import TranscribeOptions
from core.settings import Settings
from models import Job, JobStatus, Window, WindowStatus
from tests.integration.workers.conftest import make_pipeline
from tests.support.pipeline import ADAPTER, Pipeline, noise, wav
from workers import device
from workers.device import DeviceWatch
from workers.process import WorkerProcess


class Gpu:
    """Works until `is_lost`."""

    def __init__(self) -> None:
        self.is_lost = False
        self.num_looks = 0

    def breaks(self, _windows: object) -> None:
        self.is_lost = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def look(self, _name: str) -> bool:
        self.num_looks += 1
        return self.is_lost


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setattr(device, "is_lost", gpu.look)
    return gpu


@pytest.fixture
def pipeline(sessions, tmp_path) -> Pipeline:
    ends = threading.Event()
    pipeline = make_pipeline(sessions, tmp_path, device=DeviceWatch("cuda", on_loss=ends.set))
    pipeline.context = replace(pipeline.context, stopping=ends)
    pipeline.engine = pipeline.new_engine("first")
    return pipeline


def submit(pipeline: Pipeline) -> None:
    options = TranscribeOptions(language="en", vad=False)
    pipeline.submit(wav(noise(9.0)), options=options)
    while any(kind == "prepare" for kind, _ in pipeline.messages.waiting):
        pipeline.step()


def windows(pipeline: Pipeline) -> list[Window]:
    with read_session(pipeline.context.sessions) as session:
        return list(session.query(Window).order_by(Window.index))


def job(pipeline: Pipeline) -> Job:
    with read_session(pipeline.context.sessions) as session:
        return session.query(Job).one()


def restart(pipeline: Pipeline) -> None:
    pipeline.context = replace(
        pipeline.context,
        stopping=threading.Event(),
        device=DeviceWatch("cuda", on_loss=lambda: None),
    )
    pipeline.engine = pipeline.new_engine("second")


def test_only_the_batch_it_died_of_counts_it_and_the_next_process_goes_on(gpu, pipeline) -> None:
    submit(pipeline)
    pipeline.adapter.before = gpu.breaks
    pipeline.run()
    assert pipeline.context.stopping.is_set()
    assert {row.status for row in windows(pipeline)} == {WindowStatus.PENDING}
    counted = {str(row.id) for row in windows(pipeline) if row.failures}
    assert counted == {window.key for window in pipeline.adapter.batches[0]}
    assert len(counted) < len(windows(pipeline))
    assert job(pipeline).status == JobStatus.RUNNING

    restart(pipeline)
    gpu.is_lost = False
    pipeline.adapter.before = lambda _windows: None
    pipeline.messages.wake(ADAPTER)
    pipeline.run()
    assert job(pipeline).status == JobStatus.COMPLETED


def test_a_window_that_no_device_survives_fails_its_job_by_name(gpu, pipeline) -> None:
    submit(pipeline)
    for _ in range(40):
        pipeline.adapter.before = gpu.breaks
        pipeline.messages.wake(ADAPTER)
        pipeline.run()
        if job(pipeline).status == JobStatus.FAILED:
            break
        restart(pipeline)
        gpu.is_lost = False
    assert job(pipeline).error_code == "device_lost"


def test_claims_come_back_when_the_checkpoint_cannot_be_moved_to_the_device(
    gpu, pipeline, monkeypatch
) -> None:
    submit(pipeline)
    monkeypatch.setattr(pipeline.context.catalog, "load", gpu.breaks)
    pipeline.engine = pipeline.new_engine("third")
    with pytest.raises(RuntimeError, match="illegal memory"):
        pipeline.run()
    assert pipeline.context.stopping.is_set()
    assert {(row.status, row.failures) for row in windows(pipeline)} == {(WindowStatus.PENDING, 0)}


def test_what_adapters_raise_on_purpose_and_answers_say_nothing_of_the_device(gpu) -> None:
    watch = DeviceWatch("cuda", on_loss=lambda: pytest.fail("nothing is lost"))
    assert not watch.look([None, TokenLimitReached("too long")])
    assert gpu.num_looks == 0
    assert not watch.look([RuntimeError("shape mismatch")])
    assert gpu.num_looks == 1


def test_the_process_ends_as_if_told_to(gpu, tmp_path) -> None:
    gpu.is_lost = True
    came = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: came.set())
    try:
        process = WorkerProcess(Settings(data_dir=tmp_path), name="w", num_long_media=1)
        assert process.device.look([RuntimeError("CUDA error")])
        assert came.wait(5)
        assert process.stopping.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)
