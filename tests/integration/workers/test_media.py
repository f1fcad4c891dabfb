"""What prepare makes of media: silence, errors that cannot pass, errors that may, channels."""

import numpy as np
import pytest

from core.audio.plan import iter_windows
from core.db import read_session, unit_of_work
from core.errors import StorageUnavailable
from lifecycle.transcripts import load_transcript
from models import Job, JobStatus
from tests.integration.workers.test_lost_work import sweep_until
from tests.support.pipeline import noise, text_of, wav
from workers.prepare import prepare


def test_silence_gives_an_empty_transcript(pipeline, submit, job_of, events_of) -> None:
    job_id = submit(np.zeros(48_000, np.float32), vad=True, language="auto")

    pipeline.run()

    job = job_of(job_id)
    assert job.status == JobStatus.COMPLETED
    assert (job.windows_total, job.language, job.duration_ms) == (0, None, 3000)
    assert pipeline.adapter.batches == []
    assert [e.type for e in events_of(job_id)][-2:] == ["transcript.text.done", "job.completed"]
    with read_session(pipeline.context.sessions) as session:
        assert load_transcript(session, job).segments == ()


def test_decoding_can_be_stopped_where_nobody_speaks(pipeline, submit, job_of, monkeypatch) -> None:
    job_id = submit(np.zeros(10 * 48_000, np.float32), vad=True)

    def begin(*args, **kwargs):
        pipeline.context.stopping.set()  # as the loss of the claim does, after a cancel
        return iter_windows(*args, **kwargs)

    monkeypatch.setattr("workers.prepare.iter_windows", begin)
    prepare(pipeline.context, job_id)

    job = job_of(job_id)
    assert (job.stage, job.duration_ms, job.lease_expires_at) == ("prepare", None, None)


def test_a_short_recording_does_not_wait_behind_long_ones(pipeline, submit, job_of) -> None:
    *long, short = [submit() for _ in range(4)]
    with unit_of_work(pipeline.context.sessions) as uow:
        for job_id in long:
            uow.session.get_one(Job, job_id).estimated_ms = 20 * 60_000
        uow.session.get_one(Job, short).estimated_ms = 5_000
    busy = [pipeline.context.long_media.acquire(blocking=False) for _ in range(2)]
    for job_id in (*long, short):  # each message comes, those of long ones to nothing
        prepare(pipeline.context, job_id)
    assert busy == [True, True]
    assert [job_of(job_id).stage for job_id in long] == ["prepare"] * 3
    assert job_of(short).stage == "recognise"

    pipeline.messages.waiting.clear()
    pipeline.context.long_media.release()
    first, *others = long
    prepare(pipeline.context, first)  # its end tells those that were turned away
    assert job_of(first).stage == "recognise"
    told = [message for message in pipeline.messages.waiting if message[0] == "prepare"]
    assert [message[1] for message in told] == others


@pytest.mark.parametrize(
    ("media", "code"), [(b"", "media_empty"), (b"this is not audio\n" * 99, "media_undecodable")]
)
def test_bad_media_fails_at_once_with_its_code(pipeline, submit, job_of, media, code) -> None:
    job_id = submit(media=media)
    pipeline.run()
    job = job_of(job_id)
    assert (job.status, job.error_code, job.attempt) == (JobStatus.FAILED, code, 1)


def test_media_that_vanished_fails_the_job(pipeline, submit, job_of) -> None:
    job_id = submit()
    for info in list(pipeline.context.storage.list("media/")):
        pipeline.context.storage.delete(info.key)
    pipeline.run()
    assert job_of(job_id).error_code == "media_gone"


def test_an_error_that_may_pass_is_tried_again_later_and_not_forever(
    pipeline, submit, job_of, monkeypatch
) -> None:
    def silent(*_args, **_kwargs):
        raise StorageUnavailable("no answer")

    job_id = submit()
    monkeypatch.setattr(pipeline.context.storage, "put", silent)
    pipeline.run()
    job = job_of(job_id)
    assert (job.status, job.failures, job.lease_expires_at) == (JobStatus.RUNNING, 1, None)
    assert job.retry_at > pipeline.clock()
    prepare(pipeline.context, job_id)
    assert job_of(job_id).attempt == 1  # too early

    sweep_until(pipeline, lambda: job_of(job_id).status == JobStatus.FAILED)
    assert job_of(job_id).error_code == "storage_unavailable"
    assert job_of(job_id).attempt == pipeline.context.settings.max_attempts


def test_channels_are_told_apart_and_merged_by_time(pipeline, submit, job_of, events_of) -> None:
    left, right = noise(4.0, seed=1), noise(4.0, seed=2)
    job_id = submit(media=wav(np.stack([left, right], axis=1)), channels="split")

    pipeline.run()

    with read_session(pipeline.context.sessions) as session:
        segments = load_transcript(session, job_of(job_id)).segments
    assert {s.channel for s in segments} == {0, 1}
    assert [(s.start_ms, s.channel) for s in segments] == sorted(
        (s.start_ms, s.channel) for s in segments
    )
    for segment in segments:
        source = (left, right)[segment.channel]
        assert segment.text == text_of(source[segment.start_ms * 16 : segment.end_ms * 16])
    told = [e.data["text"] for e in events_of(job_id) if e.type == "transcript.segment"]
    assert told == [s.text for s in segments]


def test_translation_is_refused_where_the_model_cannot(pipeline, submit, job_of) -> None:
    job_id = submit(task="translate")
    pipeline.run()
    assert job_of(job_id).error_code == "invalid_option"


def test_the_size_of_media_that_was_not_uploaded_here_is_recorded(pipeline, submit) -> None:
    from sqlalchemy import select

    from models import Media

    content = wav(noise(1.0))
    submit(media=content)
    pipeline.run()
    with read_session(pipeline.context.sessions) as session:
        assert session.scalars(select(Media.size_bytes)).one() == len(content)


@pytest.mark.parametrize(("long_ms", "num_waits"), [(0, 1), (60_000, 0)])
def test_only_a_long_recording_stands_aside_until_its_first_window_is_recognised(
    pipeline, submit, windows_of, monkeypatch, *, long_ms: int, num_waits: int
) -> None:
    monkeypatch.setattr("workers.prepare.LONG_MS", long_ms)
    monkeypatch.setattr("workers.prepare.FIRST_WINDOW_MS", 300)
    settings = pipeline.context.settings.model_copy(update={"first_words_s": 60.0})
    object.__setattr__(pipeline.context, "settings", settings)
    known = []

    def wait(_seconds: float) -> None:
        known.append(len(windows_of(job_id)))
        pipeline.engine.run()

    job_id = submit(noise(16.0), language="en")
    monkeypatch.setattr(pipeline.context.stopping, "wait", wait)
    pipeline.step()

    assert known == [1] * num_waits
    assert [w.status for w in windows_of(job_id)].count("done") == num_waits
    first, second, *_ = windows_of(job_id)
    assert (first.num_samples <= 4_800) == (num_waits == 1)
    assert second.num_samples > 4_800
