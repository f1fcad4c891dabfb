"""The engine's threads: leases are kept, batches are prefetched, wake-ups are not lost."""

import threading
from collections.abc import Callable
from datetime import timedelta
from weakref import WeakMethod

import pytest

from core.db import unit_of_work
from core.errors import LeaseLost
from lifecycle.jobs import cancel_job, lock_job
from lifecycle.stages import claim_stage, renew_stage
from models import JobStage, JobStatus, WindowStatus
from tests.integration.workers.conftest import make_pipeline
from tests.support.pipeline import ADAPTER, noise
from workers.context import utc_now
from workers.heartbeat import Heartbeat, _starter
from workers.sweep import sweep


def wait_until(is_true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.02)):
        if is_true():
            return
        pause.wait(0.02)
    pytest.fail("it did not come true in time")


@pytest.fixture
def pipeline(sessions, tmp_path):
    pipeline = make_pipeline(sessions, tmp_path, lease_s=1.0)
    object.__setattr__(pipeline.context, "now", utc_now)
    return pipeline


def test_a_forward_pass_longer_than_the_lease_keeps_its_windows(
    pipeline, submit, job_of, windows_of
) -> None:
    job_id = submit(noise(3.0))

    def take_long(_windows) -> None:
        first = max(w.lease_expires_at for w in windows_of(job_id) if w.lease_expires_at)
        wait_until(lambda: utc_now() > first + timedelta(seconds=0.2))
        sweep(pipeline.context, pipeline.messages)

    pipeline.adapter.before = take_long
    pipeline.run()

    assert job_of(job_id).status == JobStatus.COMPLETED
    assert {(w.attempt, w.failures) for w in windows_of(job_id)} == {(1, 0)}


def test_the_next_batch_is_claimed_while_the_model_runs_and_no_more(
    pipeline, submit, windows_of
) -> None:
    job_id = submit(noise(14.0), language="auto")
    pipeline.step()
    held: list[int] = []

    def look(windows) -> None:
        if not held:
            wait_until(lambda: num_running() >= 8)
            held.append(num_running())

    def num_running() -> int:
        return sum(w.status == WindowStatus.RUNNING for w in windows_of(job_id))

    pipeline.adapter.before = look
    pipeline.run()
    assert held == [8]  # four in the model, four ahead


def test_a_stop_finishes_the_present_batch_and_gives_the_next_one_back(
    pipeline, submit, job_of, windows_of
) -> None:
    job_id = submit(noise(14.0), language="auto")
    pipeline.step()

    def stop(_windows) -> None:
        wait_until(lambda: sum(w.attempt for w in windows_of(job_id)) >= 8)
        pipeline.context.stopping.set()

    pipeline.adapter.before = stop
    pipeline.step()

    rows = windows_of(job_id)
    assert sum(w.status == WindowStatus.DONE for w in rows) == 4
    assert {w.status for w in rows} == {WindowStatus.DONE, WindowStatus.PENDING}
    assert {w.failures for w in rows} == {0}
    assert ("recognise", ADAPTER) in pipeline.messages.waiting
    assert job_of(job_id).status == JobStatus.RUNNING


def test_claims_given_back_in_a_hurry_are_free_at_once_and_late_results_do_not_count(
    pipeline, submit, job_of, windows_of
) -> None:
    job_id = submit(noise(3.0), language="auto")
    pipeline.step()
    num_passes = 0

    def give_back_the_first(_windows) -> None:
        nonlocal num_passes
        num_passes += 1
        if num_passes == 1:
            pipeline.engine.release_all()

    pipeline.adapter.before = give_back_the_first
    pipeline.run()
    assert job_of(job_id).status == JobStatus.COMPLETED
    assert {(w.attempt, w.failures) for w in windows_of(job_id)} == {(2, 0)}


def test_a_slice_that_is_over_wakes_the_next(pipeline, submit, job_of) -> None:
    object.__setattr__(
        pipeline.context,
        "settings",
        pipeline.context.settings.model_copy(update={"time_slice_s": 0.001}),
    )
    job_id = submit(noise(12.0), language="auto")
    pipeline.step()
    pipeline.messages.waiting.clear()

    for num_slices in (1, 2, 3):
        pipeline.engine.run()
        assert pipeline.messages.waiting.popleft() == ("recognise", ADAPTER)
        assert job_of(job_id).windows_done == 4 * num_slices  # one batch each


def test_a_wake_up_that_comes_while_a_slice_runs_is_heeded(pipeline, submit, job_of) -> None:
    first = submit(noise(1.0))
    pipeline.step()
    later: list = []

    def another_arrives(_windows) -> None:
        if not later:
            later.append(submit(noise(1.0, seed=5)))
            from workers.prepare import prepare

            prepare(pipeline.context, later[0])
            pipeline.engine.run()  # its message, in another thread of the pool: returns at once

    pipeline.adapter.before = another_arrives
    pipeline.engine.run()
    assert job_of(first).windows_done == job_of(later[0]).windows_done == 1


def test_a_heartbeat_beats_until_the_work_ends_and_tells_when_the_lease_is_lost() -> None:
    beats = threading.Semaphore(0)
    with Heartbeat(beats.release, interval_s=0.01) as heartbeat:
        assert beats.acquire(timeout=5)
        assert beats.acquire(timeout=5)
    assert not heartbeat.lost.is_set()

    def lose() -> None:
        raise LeaseLost("gone")

    with Heartbeat(lose, interval_s=0.01) as heartbeat:
        assert heartbeat.lost.wait(5)


def test_work_that_ends_before_the_first_beat_starts_no_thread(monkeypatch) -> None:
    started = []

    def note(heartbeat: Heartbeat) -> None:
        started.append(heartbeat)

    monkeypatch.setattr(Heartbeat, "_run", note)
    later = threading.Event()

    class Later:
        def call(self) -> None:
            later.set()

    after, short = Later(), Heartbeat(lambda: None, interval_s=0.05)
    with short:
        pass
    _starter.call_later(0.1, WeakMethod(after.call))
    assert later.wait(5)
    assert started == []


def test_renewing_a_stage_needs_the_attempt_that_claimed_it(pipeline, submit) -> None:
    job_id = submit()
    lease = pipeline.context.lease
    with unit_of_work(pipeline.context.sessions) as uow:
        job = claim_stage(
            uow, pipeline.events, job_id, JobStage.PREPARE, lease=lease, now=utc_now()
        )
    for attempt, is_ours in ((job.attempt, True), (job.attempt + 1, False)):
        if is_ours:
            with unit_of_work(pipeline.context.sessions) as uow:
                renew_stage(
                    uow.session,
                    job_id,
                    JobStage.PREPARE,
                    attempt=attempt,
                    lease=lease,
                    now=utc_now(),
                )
        else:
            with pytest.raises(LeaseLost), unit_of_work(pipeline.context.sessions) as uow:
                renew_stage(
                    uow.session,
                    job_id,
                    JobStage.PREPARE,
                    attempt=attempt,
                    lease=lease,
                    now=utc_now(),
                )


def test_windows_whose_job_was_cancelled_after_the_claim_never_reach_the_model(
    pipeline, submit, windows_of
) -> None:
    job_id = submit(noise(7.0), language="auto")
    pipeline.step()

    def cancel(windows) -> None:
        wait_until(lambda: num_running() > len(windows))  # the next batch is claimed
        with unit_of_work(pipeline.context.sessions) as uow:
            cancel_job(uow, pipeline.events, lock_job(uow.session, job_id), now=utc_now())

    def num_running() -> int:
        return sum(w.status == WindowStatus.RUNNING for w in windows_of(job_id))

    pipeline.adapter.before = cancel
    pipeline.run()

    assert len(pipeline.adapter.batches) == 1


def test_the_default_checkpoint_is_tried_before_the_first_job(pipeline, submit, job_of) -> None:
    pipeline.engine.preload()
    wait_until(lambda: len(pipeline.adapter.batches) == 1)
    (trial,) = pipeline.adapter.batches[0]
    assert trial.duration_ms == 1000
    job_id = submit()
    pipeline.run()
    assert job_of(job_id).status == JobStatus.COMPLETED


def test_a_trial_that_fails_harms_nothing(pipeline, submit, job_of) -> None:
    failed = threading.Event()

    def fail(windows) -> None:
        if windows[0].key == "trial":
            failed.set()
            raise RuntimeError("no kernel image is available")

    pipeline.adapter.before = fail
    pipeline.engine.preload()
    assert failed.wait(20)
    job_id = submit()
    pipeline.run()
    assert job_of(job_id).status == JobStatus.COMPLETED
