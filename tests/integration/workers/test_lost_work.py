"""Losing messages, workers or leases delays work; none is lost, doubled or recomputed."""

from uuid import UUID

import pytest

from core.db import read_session, unit_of_work
from core.errors import StorageUnavailable
from lifecycle.claims import ClaimRequest, claim_windows
from lifecycle.fairness import Rotation
from lifecycle.windows import begin_windows, complete_windows, lease_of
from models import JobStage, JobStatus, Media, WindowStatus
from tests.support.pipeline import ADAPTER, MODEL, noise, text_of
from workers.finish import finish
from workers.prepare import prepare
from workers.sweep import sweep


def sweep_until(pipeline, is_done, *, limit: int = 40) -> None:
    """Let time pass and sweep, as beat would."""
    for _ in range(limit):
        if is_done():
            return
        pipeline.clock.advance(5)
        sweep(pipeline.context, pipeline.messages)
        pipeline.run()
    pytest.fail("the sweeper did not bring it to an end")


def claim(pipeline, num_windows: int):
    """Claim windows as an engine that is about to die would."""
    context = pipeline.context
    request = ClaimRequest(
        adapter=ADAPTER, model=MODEL, engine="doomed", lease=context.lease, pool=16
    )
    with unit_of_work(context.sessions) as uow:
        return claim_windows(
            uow.session,
            request,
            choose=lambda candidates: candidates[:num_windows],
            rotation=Rotation(),
            now=context.now(),
        )


def begin(pipeline, rows) -> None:
    with unit_of_work(pipeline.context.sessions) as uow:
        begin_windows(uow.session, [lease_of(r) for r in rows], now=pipeline.context.now())


def run_until_stage(pipeline, job_of, job_id: UUID, stage: JobStage) -> None:
    while job_of(job_id).stage != stage:
        assert pipeline.step()


@pytest.mark.parametrize("num_steps", range(6))
def test_losing_every_message_at_any_moment_loses_no_work(
    pipeline, submit, job_of, events_of, num_steps
) -> None:
    samples = noise(9.0)
    job_id = submit(samples)
    for _ in range(num_steps):
        pipeline.step()

    pipeline.messages.waiting.clear()
    sweep_until(pipeline, lambda: job_of(job_id).status == JobStatus.COMPLETED)

    told = [e.data["text"] for e in events_of(job_id) if e.type == "transcript.segment"]
    heard = [w for batch in pipeline.adapter.batches for w in batch]
    assert len(heard) == job_of(job_id).windows_total  # each window once
    assert sorted(told) == sorted(text_of(w.samples) for w in heard)
    assert sum(len(w.samples) for w in heard) == len(samples)


def test_every_message_may_arrive_twice(pipeline, submit, job_of, windows_of) -> None:
    job_id = submit()
    for kind, subject in (("prepare", job_id), ("recognise", ADAPTER), ("finish", job_id)):
        pipeline.messages.waiting.extend([(kind, subject)] * 2)

    pipeline.run()
    attempt = job_of(job_id).attempt
    prepare(pipeline.context, job_id)
    finish(pipeline.context, job_id)

    job = job_of(job_id)
    assert job.status == JobStatus.COMPLETED
    assert job.attempt == attempt == 2  # one claim of prepare, one of finish
    assert {w.attempt for w in windows_of(job_id)} == {1}


def test_windows_of_a_dead_engine_are_recognised_by_another_and_done_ones_are_kept(
    pipeline, submit, job_of, windows_of
) -> None:
    job_id = submit(noise(8.0))
    run_until_stage(pipeline, job_of, job_id, JobStage.RECOGNISE)
    done = [w.id for w in windows_of(job_id) if w.status == WindowStatus.DONE]
    pipeline.messages.waiting.clear()
    dead = claim(pipeline, 3)
    begin(pipeline, dead)

    sweep_until(pipeline, lambda: job_of(job_id).status == JobStatus.COMPLETED)

    by_id = {w.id: w for w in windows_of(job_id)}
    assert {by_id[i].attempt for i in done} <= {1}
    for row in dead:
        assert (by_id[row.id].attempt, by_id[row.id].failures) == (2, 1)
    assert all(by_id[i].failures == 0 for i in by_id if i not in {r.id for r in dead})


def test_suspects_of_a_death_run_alone_and_windows_that_only_waited_are_not_blamed(
    pipeline, submit, job_of, windows_of
) -> None:
    job_id = submit(noise(8.0), language="auto")  # claimable only once all are known
    pipeline.step()
    pipeline.messages.waiting.clear()
    started = claim(pipeline, 3)
    begin(pipeline, started)
    waiting = claim(pipeline, 2)

    sweep_until(pipeline, lambda: job_of(job_id).status == JobStatus.COMPLETED)

    failures = {w.id: w.failures for w in windows_of(job_id)}
    assert [failures[r.id] for r in started] == [1, 1, 1]
    assert [failures[r.id] for r in waiting] == [0, 0]
    suspects = {str(r.id) for r in started}
    for batch in pipeline.adapter.batches:
        if suspects & {window.key for window in batch}:
            assert len(batch) == 1


def test_a_late_result_changes_nothing(pipeline, submit, job_of, windows_of, events_of) -> None:
    samples = noise(3.0)
    job_id = submit(samples)
    run_until_stage(pipeline, job_of, job_id, JobStage.PREPARE)
    pipeline.step()
    pipeline.messages.waiting.clear()
    late = claim(pipeline, 1)
    begin(pipeline, late)
    sweep_until(pipeline, lambda: job_of(job_id).status == JobStatus.COMPLETED)
    before = events_of(job_id)

    hypothesis = pipeline.adapter.transcribe([_window(samples[:8000])])[0]
    for status in ("while completed", "again"):
        with unit_of_work(pipeline.context.sessions) as uow:
            num_stored = complete_windows(
                uow,
                pipeline.events,
                pipeline.messages,
                job_id,
                [(lease_of(late[0]), hypothesis)],
                now=pipeline.clock(),
            )
        assert num_stored == 0, status
    assert len(events_of(job_id)) == len(before)


def test_a_result_of_an_older_attempt_is_fenced_while_the_job_still_runs(
    pipeline, submit, job_of, windows_of
) -> None:
    samples = noise(3.0)
    job_id = submit(samples)
    pipeline.step()
    pipeline.messages.waiting.clear()
    old = claim(pipeline, 1)[0]
    begin(pipeline, [old])
    old_lease = lease_of(old)
    pipeline.clock.advance(60)
    sweep(pipeline.context, pipeline.messages)
    new = claim(pipeline, 1)[0]
    assert (new.id, new.attempt) == (old_lease.window_id, 2)

    hypothesis = pipeline.adapter.transcribe([_window(samples[:8000])])[0]
    with unit_of_work(pipeline.context.sessions) as uow:
        num_stored = complete_windows(
            uow,
            pipeline.events,
            pipeline.messages,
            job_id,
            [(old_lease, hypothesis)],
            now=pipeline.clock(),
        )

    assert num_stored == 0
    assert windows_of(job_id)[0].status == WindowStatus.RUNNING
    assert job_of(job_id).windows_done == 0


def test_a_worker_lost_in_prepare_again_and_again_fails_the_job(pipeline, submit, job_of) -> None:
    from lifecycle.stages import claim_stage

    job_id = submit()
    pipeline.messages.waiting.clear()
    for _ in range(pipeline.context.settings.max_attempts):
        with unit_of_work(pipeline.context.sessions) as uow:
            assert claim_stage(
                uow,
                pipeline.events,
                job_id,
                JobStage.PREPARE,
                lease=pipeline.context.lease,
                now=pipeline.clock(),
            )
        pipeline.clock.advance(60)
        sweep(pipeline.context, pipeline.messages)
        pipeline.clock.advance(60)

    job = job_of(job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "worker_lost")


def test_two_workers_cannot_own_one_stage(pipeline, submit) -> None:
    from lifecycle.stages import claim_stage

    job_id = submit()
    claims = []
    for _ in range(2):
        with unit_of_work(pipeline.context.sessions) as uow:
            claims.append(
                claim_stage(
                    uow,
                    pipeline.events,
                    job_id,
                    JobStage.PREPARE,
                    lease=pipeline.context.lease,
                    now=pipeline.clock(),
                )
            )
    assert claims[0] is not None
    assert claims[1] is None


def test_prepare_goes_on_where_a_stopping_worker_left_off(
    pipeline, submit, job_of, windows_of
) -> None:
    samples = noise(12.0)
    job_id = submit(samples)
    wake = pipeline.messages.wake

    def stop_after_the_first_shard(adapter: str, *, count: int = 1) -> None:
        pipeline.context.stopping.set()
        wake(adapter, count=count)

    pipeline.messages.wake = stop_after_the_first_shard
    pipeline.step()
    first = windows_of(job_id)
    assert 0 < len(first) < 12
    assert job_of(job_id).lease_expires_at is None
    assert job_of(job_id).failures == 0

    pipeline.messages.wake = wake
    pipeline.context.stopping.clear()
    pipeline.run()

    assert job_of(job_id).status == JobStatus.COMPLETED
    windows = windows_of(job_id)
    assert [w.id for w in windows[: len(first)]] == [w.id for w in first]
    assert [w.index for w in windows] == list(range(len(windows)))
    assert sum(w.num_samples for w in windows) == len(samples)
    assert {w.attempt for w in windows} == {1}
    with read_session(pipeline.context.sessions) as session:
        media = session.get_one(Media, job_of(job_id).media_id)
    assert media.sha256 is not None, "nobody could reuse the transcript"


def test_storage_that_does_not_answer_delays_and_fails_nothing(
    pipeline, submit, job_of, windows_of
) -> None:
    job_id = submit()
    pipeline.step()
    read = pipeline.context.storage.read

    def silent(*_args, **_kwargs):
        raise StorageUnavailable("no answer")

    pipeline.context.storage.read = silent
    pipeline.run()
    assert {w.status for w in windows_of(job_id)} == {WindowStatus.PENDING}
    assert {w.failures for w in windows_of(job_id)} == {0}

    pipeline.context.storage.read = read
    sweep_until(pipeline, lambda: job_of(job_id).status == JobStatus.COMPLETED)


def _window(samples):
    from adapters.base import Window

    return Window(key="late", samples=samples, language="en")


def test_a_claim_given_back_in_a_hurry_is_free_at_once_and_nobody_is_blamed(
    pipeline, submit, job_of
) -> None:
    from workers.stage import run_stage

    job_id = submit()
    pipeline.messages.waiting.clear()

    def work(claim) -> None:
        (release,) = claim.context.give_up.values()
        release()

    run_stage(pipeline.context, job_id, JobStage.PREPARE, work)
    assert pipeline.context.give_up == {}
    job = job_of(job_id)
    assert (job.status, job.lease_expires_at, job.failures) == (JobStatus.RUNNING, None, 0)

    pipeline.run()
    assert job_of(job_id).status == JobStatus.COMPLETED
