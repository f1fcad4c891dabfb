"""What must hold of a whole job whatever happens to it: one end, one result, one webhook.

Named after the cases that others' servers failed; tests/README.md says which test covers which.
"""

import os
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import select

from core.db import make_engine, make_sessions, read_session, unit_of_work
from core.options import TranscribeOptions
from lifecycle.jobs import cancel_job, lock_job
from lifecycle.transcripts import load_transcript
from models import Delivery, Job, JobStage, JobStatus
from tests.integration.workers.conftest import make_pipeline
from tests.integration.workers.test_lost_work import begin, claim, run_until_stage, sweep_until
from tests.support.pipeline import ADAPTER, noise
from workers.finish import finish
from workers.prepare import prepare

MEDIA = Path(__file__).parents[2] / "data" / "media"


@pytest.fixture
def submit_with_webhook(pipeline, submit):
    def make(*args, **options) -> UUID:
        job_id = submit(*args, **options)
        with unit_of_work(pipeline.context.sessions) as uow:
            uow.session.get_one(Job, job_id).webhook_url = "https://example.com/hook"
        return job_id

    return make


def told(pipeline, job_id: UUID) -> list[str]:
    """Return the types of the webhook events about a job."""
    with read_session(pipeline.context.sessions) as session:
        of_job = select(Delivery.event_type).where(Delivery.subject_id == job_id)
        return list(session.scalars(of_job))


def text_of_job(pipeline, job: Job) -> str:
    with read_session(pipeline.context.sessions) as session:
        return load_transcript(session, job).text


def test_a_worker_killed_in_the_middle_leaves_one_result_and_one_webhook(
    pipeline, submit_with_webhook, submit, job_of
) -> None:
    """S01: the job ends within a bounded time, and never goes on for ever."""
    samples = noise(8.0)
    undisturbed = submit(samples)
    pipeline.run()
    job_id = submit_with_webhook(samples, prompt="another job")
    run_until_stage(pipeline, job_of, job_id, JobStage.RECOGNISE)
    pipeline.messages.waiting.clear()
    begin(pipeline, claim(pipeline, 3))  # and nothing is heard of that worker again

    sweep_until(pipeline, lambda: job_of(job_id).status == JobStatus.COMPLETED)

    assert told(pipeline, job_id) == ["job.completed"]
    expected = text_of_job(pipeline, job_of(undisturbed))
    assert text_of_job(pipeline, job_of(job_id)) == expected != ""


def test_a_message_that_comes_again_while_its_job_runs_is_dropped(
    pipeline, submit_with_webhook, job_of, events_of
) -> None:
    """S02: a broker delivers again what takes longer than its visibility timeout."""
    job_id = submit_with_webhook(noise(8.0))

    def deliver_again(_windows) -> None:
        prepare(pipeline.context, job_id)
        pipeline.new_engine().run()
        finish(pipeline.context, job_id)

    pipeline.adapter.before = deliver_again
    pipeline.run()
    pipeline.adapter.before = lambda _windows: None
    for kind, subject in (("prepare", job_id), ("recognise", ADAPTER), ("finish", job_id)):
        pipeline.messages.waiting.append((kind, subject))
    pipeline.run()

    assert job_of(job_id).status == JobStatus.COMPLETED
    assert told(pipeline, job_id) == ["job.completed"]
    heard = [window.key for batch in pipeline.adapter.batches for window in batch]
    assert len(heard) == len(set(heard)) == job_of(job_id).windows_total
    assert [e.type for e in events_of(job_id)].count("job.completed") == 1


def test_a_job_cancelled_while_it_runs_stops_soon_and_frees_its_place(
    pipeline, submit_with_webhook, job_of
) -> None:
    """S05: `cancelled` is the end, no webhook says otherwise, and the next job has its turn."""
    job_id, following = submit_with_webhook(noise(40.0)), submit_with_webhook(noise(3.0, seed=2))

    def cancel(_windows) -> None:
        pipeline.adapter.before = lambda _windows: None
        with unit_of_work(pipeline.context.sessions) as uow:
            job = lock_job(uow.session, job_id)
            cancel_job(uow, pipeline.context.publisher, job, now=pipeline.context.now())

    pipeline.adapter.before = cancel
    pipeline.run()

    assert job_of(job_id).status == JobStatus.CANCELLED
    assert told(pipeline, job_id) == ["job.cancelled"]
    assert job_of(following).status == JobStatus.COMPLETED
    assert told(pipeline, following) == ["job.completed"]
    # Of its 40 windows those of the present batch, and at most one that was claimed ahead.
    most = 2 * pipeline.context.settings.batch_windows + job_of(following).windows_total
    assert sum(map(len, pipeline.adapter.batches)) <= most


def test_a_job_without_audio_never_gets_the_text_of_the_one_before(
    pipeline, submit_with_webhook, job_of
) -> None:
    """S12: no file name, no row and no cache of a good job serves the next."""
    good = submit_with_webhook(noise(3.0))
    bad = submit_with_webhook(media=(MEDIA / "mp4_video_no_audio.mp4").read_bytes())
    pipeline.run()
    assert text_of_job(pipeline, job_of(good)) != ""
    job = job_of(bad)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "media_has_no_audio")
    assert job.transcript_key is None
    assert told(pipeline, bad) == ["job.failed"]


def test_many_tiny_files_end_and_leak_neither_handles_nor_processes(sqlite_url, tmp_path) -> None:
    """S21, in small: 300 of them were sent to the whole service by hand."""
    tiny = (MEDIA / "wav_50ms.wav").read_bytes()
    engine = make_engine(sqlite_url)
    pipeline = make_pipeline(make_sessions(engine), tmp_path)
    counts = []
    for number in range(21):
        options = TranscribeOptions(language="en", prompt=str(number))
        job_id = pipeline.submit(tiny, options=options)
        pipeline.run()
        with read_session(pipeline.context.sessions) as session:
            assert session.get_one(Job, job_id).status == JobStatus.COMPLETED
        counts.append((count_handles(), count_children()))
    assert counts[-1] <= counts[0]  # what is opened once is open after the first
    assert list(pipeline.context.storage.list("windows/")) == []
    engine.dispose()


def count_handles() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def count_children() -> int:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return len(children.split())
