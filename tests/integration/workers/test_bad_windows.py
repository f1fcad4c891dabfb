"""A window that fails stays alone with it; cancelled ones cost nothing."""

import numpy as np
import pytest

from core.db import read_session, unit_of_work
from core.errors import AdapterFailure, DeviceOutOfMemory, TokenLimitReached
from lifecycle.jobs import cancel_job, lock_job, retry_job
from lifecycle.transcripts import load_transcript
from models import JobStatus, WindowStatus
from tests.support.pipeline import noise, text_of

POISON = 0.5


def poisoned(seconds: float) -> np.ndarray:
    """Return noise whose second second holds what the adapter below cannot bear."""
    samples = noise(seconds, seed=2)
    samples[24_000] = POISON
    return samples


def choke(windows) -> None:
    if any((window.samples == POISON).any() for window in windows):
        raise AdapterFailure("cannot bear this")


def test_a_poisonous_window_fails_its_job_and_no_neighbour(
    pipeline, submit, job_of, windows_of
) -> None:
    pipeline.adapter.before = choke
    bad, good = submit(poisoned(3.0)), submit(noise(3.0))

    pipeline.run()

    job = job_of(bad)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "adapter_failure")
    assert "cannot bear this" in job.error_message
    assert job_of(good).status == JobStatus.COMPLETED
    assert {w.failures for w in windows_of(good)} == {0}
    failed = [w for w in windows_of(bad) if w.status == WindowStatus.FAILED]
    assert [w.failures for w in failed] == [pipeline.context.settings.max_attempts]


def test_with_gap_the_job_completes_and_says_what_is_missing(
    pipeline, submit, job_of, windows_of, events_of
) -> None:
    pipeline.adapter.before = choke
    job_id = submit(poisoned(4.0), on_window_failure="gap")

    pipeline.run()

    job = job_of(job_id)
    assert job.status == JobStatus.COMPLETED
    lost = next(w for w in windows_of(job_id) if w.status == WindowStatus.FAILED)
    assert job.coverage["gaps"] == [
        {
            "start_ms": lost.start_sample // 16,
            "end_ms": (lost.start_sample + lost.num_samples) // 16,
            "channel": None,
            "reason": "adapter_failure",
        }
    ]
    told = [e for e in events_of(job_id) if e.type == "transcript.segment"]
    assert len(told) == job.windows_total - 1


def test_too_little_memory_halves_the_batch_until_it_fits(pipeline, submit, job_of) -> None:
    def refuse(windows) -> None:
        if len(windows) > 1:
            raise DeviceOutOfMemory(f"{len(windows)} windows")

    pipeline.adapter.before = refuse
    job_id = submit(noise(6.0))

    pipeline.run()

    assert job_of(job_id).status == JobStatus.COMPLETED
    assert {len(batch) for batch in pipeline.adapter.batches} >= {1, 2, 4} - {4}


def test_a_window_with_more_than_the_model_can_write_is_cut_again(pipeline, submit, job_of) -> None:
    def refuse(windows) -> None:
        if any(len(window.samples) > 12_000 for window in windows):
            raise TokenLimitReached("cap")

    pipeline.adapter.before = refuse
    samples = noise(1.0)
    samples[8_000:10_000] = 0.0  # the quiet spot
    job_id = submit(samples)

    pipeline.run()

    assert job_of(job_id).status == JobStatus.COMPLETED
    with read_session(pipeline.context.sessions) as session:
        transcript = load_transcript(session, job_of(job_id))
    left, right = transcript.segments
    cut = left.end_ms * 16
    assert 8_000 <= cut <= 10_000
    assert (left.text, right.text) == (text_of(samples[:cut]), text_of(samples[cut:]))
    assert (right.start_ms, right.end_ms) == (left.end_ms, 1000)


def test_windows_of_a_cancelled_job_are_not_recognised(
    pipeline, submit, job_of, windows_of
) -> None:
    job_id = submit()
    pipeline.step()
    _cancel(pipeline, job_id)

    pipeline.run()

    assert pipeline.adapter.batches == []
    assert {w.status for w in windows_of(job_id)} == {WindowStatus.CANCELLED}
    assert job_of(job_id).status == JobStatus.CANCELLED


def test_results_of_a_job_cancelled_in_the_forward_pass_are_dropped(
    pipeline, submit, job_of, windows_of, events_of
) -> None:
    job_id = submit()
    neighbour = submit(noise(4.0, seed=3))
    pipeline.adapter.before = lambda _windows: _cancel(pipeline, job_id)

    pipeline.step()
    pipeline.step()
    pipeline.run()

    assert job_of(job_id).status == JobStatus.CANCELLED
    assert {w.status for w in windows_of(job_id)} == {WindowStatus.CANCELLED}
    assert events_of(job_id)[-1].type == "job.cancelled"
    assert job_of(neighbour).status == JobStatus.COMPLETED


def test_a_retry_keeps_what_is_done_and_decodes_nothing_again(
    pipeline, submit, job_of, windows_of, events_of
) -> None:
    pipeline.adapter.before = choke
    samples = poisoned(8.0)
    job_id = submit(samples)
    pipeline.run()
    assert job_of(job_id).status == JobStatus.FAILED
    done = {w.id for w in windows_of(job_id) if w.status == WindowStatus.DONE}
    assert done
    pipeline.adapter.before = lambda _windows: None
    pipeline.adapter.batches.clear()
    with read_session(pipeline.context.sessions) as session:
        media_key = lock_media_key(session, job_id)
    pipeline.context.storage.delete(media_key)  # whoever decodes again will find nothing

    with unit_of_work(pipeline.context.sessions) as uow:
        job = lock_job(uow.session, job_id)
        retry_job(uow, pipeline.messages, pipeline.events, job, now=pipeline.clock())
    pipeline.run()

    assert job_of(job_id).status == JobStatus.COMPLETED
    again = {window.key for batch in pipeline.adapter.batches for window in batch}
    assert not again & {str(i) for i in done}
    told = [e.data["text"] for e in events_of(job_id) if e.type == "transcript.segment"]
    assert told == [
        text_of(samples[w.start_sample : w.start_sample + w.num_samples])
        for w in windows_of(job_id)
    ]


def test_an_unknown_language_fails_the_job_by_name(pipeline, submit, job_of) -> None:
    job_id = submit(language="sv")
    pipeline.run()
    job = job_of(job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "unknown_language")


@pytest.mark.parametrize("company", [0, 3])
def test_a_transcript_does_not_depend_on_what_else_is_in_the_batch(
    pipeline, submit, job_of, company
) -> None:
    samples = noise(3.5, seed=9)
    others = [submit(noise(2.0 + i, seed=i)) for i in range(company)]
    job_id = submit(samples, language="auto")

    pipeline.run()

    assert all(job_of(other).status == JobStatus.COMPLETED for other in others)
    with read_session(pipeline.context.sessions) as session:
        transcript = load_transcript(session, job_of(job_id))
    assert [(s.start_ms, s.end_ms) for s in transcript.segments] == [
        (0, 1000),
        (1000, 2000),
        (2000, 3000),
        (3000, 3500),
    ] or sum(s.end_ms - s.start_ms for s in transcript.segments) == 3500
    assert "".join(s.text for s in transcript.segments) == "".join(
        text_of(samples[s.start_ms * 16 : s.end_ms * 16]) for s in transcript.segments
    )


def lock_media_key(session, job_id) -> str:
    from models import Job, Media

    return session.get_one(Media, session.get_one(Job, job_id).media_id).storage_key


def _cancel(pipeline, job_id) -> None:
    with unit_of_work(pipeline.context.sessions) as uow:
        job = lock_job(uow.session, job_id)
        if not JobStatus(job.status).is_final:
            cancel_job(uow, pipeline.events, job, now=pipeline.clock())
