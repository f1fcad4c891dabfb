"""The same recording asked for again costs nothing; anything else about it does."""

from uuid import UUID

import pytest

from core.db import read_session, unit_of_work
from core.events import EventType
from core.ids import new_id
from lifecycle.jobs import get_job, purge_job
from lifecycle.transcripts import load_transcript
from models import JobStatus, Media
from tests.support.pipeline import noise, wav

AUDIO = wav(noise(4.0))


def transcript_of(pipeline, job_id: UUID):
    with read_session(pipeline.context.sessions) as session:
        return load_transcript(session, get_job(session, None, job_id))


@pytest.fixture
def first(pipeline, submit) -> UUID:
    job_id = submit(media=AUDIO)
    pipeline.run()
    pipeline.adapter.batches.clear()
    return job_id


def test_the_same_again_is_copied_and_nothing_is_recognised(
    pipeline, submit, job_of, events_of, first
):
    again = submit(media=AUDIO)
    pipeline.run()

    job = job_of(again)
    assert (job.status, job.reused_from) == (JobStatus.COMPLETED, first)
    assert pipeline.adapter.batches == []
    assert transcript_of(pipeline, again) == transcript_of(pipeline, first)
    storage = pipeline.context.storage
    assert job.transcript_key != job_of(first).transcript_key
    assert storage.read(job.transcript_key) == storage.read(job_of(first).transcript_key)
    assert (job.duration_ms, job.coverage) == (job_of(first).duration_ms, job_of(first).coverage)
    types = [event.type for event in events_of(again)]
    assert types.count(EventType.SEGMENT) == len(transcript_of(pipeline, first).segments)
    assert types[-1] == EventType.JOB_COMPLETED
    assert [event.seq for event in events_of(again)] == list(range(1, len(types) + 1))


@pytest.mark.parametrize(
    "change",
    [
        {"language": "de"},
        {"prompt": "Marvin"},
        {"timestamps": "word"},
        {"vad": True},
        {"logprobs": True},
    ],
)
def test_other_options_are_another_transcript(pipeline, submit, job_of, first, change):
    again = submit(media=AUDIO, **change)
    pipeline.run()
    assert job_of(again).reused_from is None


def test_whether_text_is_streamed_makes_no_other_transcript(pipeline, submit, job_of, first):
    again = submit(media=AUDIO, stream=True)
    pipeline.run()
    assert job_of(again).reused_from == first


def test_an_option_that_a_job_is_older_than_counts_as_its_default(pipeline, submit, job_of, first):
    with unit_of_work(pipeline.context.sessions) as uow:
        job = get_job(uow.session, None, first)
        job.options = {name: job.options[name] for name in ("language", "vad", "timestamps")}
    again = submit(media=AUDIO)
    pipeline.run()
    assert job_of(again).reused_from == first


def test_other_media_is_another_transcript(pipeline, submit, job_of, first):
    again = submit(media=wav(noise(4.0, seed=2)))
    pipeline.run()
    assert job_of(again).reused_from is None


def test_another_key_never_learns_of_it(pipeline, submit, job_of, first):
    again = submit(media=AUDIO, key_id=new_id())
    pipeline.run()
    assert (job_of(again).status, job_of(again).reused_from) == (JobStatus.COMPLETED, None)
    assert pipeline.adapter.batches != []


def test_it_can_be_forced(pipeline, submit, job_of, first):
    again = submit(media=AUDIO)
    with unit_of_work(pipeline.context.sessions) as uow:
        get_job(uow.session, None, again).may_reuse = False
    pipeline.run()
    assert job_of(again).reused_from is None
    assert pipeline.adapter.batches != []


def test_a_job_that_has_not_finished_is_not_copied(pipeline, submit, job_of):
    one, other = submit(media=AUDIO), submit(media=AUDIO)
    pipeline.run()
    assert {job_of(one).reused_from, job_of(other).reused_from} == {None}


def test_deleting_either_leaves_the_other_whole(pipeline, submit, job_of, first):
    again = submit(media=AUDIO)
    pipeline.run()
    expected = transcript_of(pipeline, first)
    with unit_of_work(pipeline.context.sessions) as uow:
        purge_job(uow, pipeline.context.storage, get_job(uow.session, None, first))
    assert transcript_of(pipeline, again) == expected
    assert pipeline.context.storage.read(job_of(again).transcript_key)


def test_a_transcript_that_has_vanished_from_storage_is_made_again(pipeline, submit, job_of, first):
    pipeline.context.storage.delete(job_of(first).transcript_key)
    again = submit(media=AUDIO)
    pipeline.run()
    assert (job_of(again).status, job_of(again).reused_from) == (JobStatus.COMPLETED, None)


def test_the_hash_is_remembered(pipeline, first, job_of):
    import hashlib

    with read_session(pipeline.context.sessions) as session:
        media = session.get_one(Media, job_of(first).media_id)
    assert media.sha256 == hashlib.sha256(AUDIO).hexdigest()
