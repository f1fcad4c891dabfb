"""From an upload to a transcript, message by message."""

import json

import numpy as np

from core.db import read_session
from core.transcript import join_texts
from lifecycle.transcripts import load_transcript
from models import JobStatus, WindowStatus
from tests.support.pipeline import noise, text_of


def expected_texts(windows, samples: np.ndarray) -> list[str]:
    return [text_of(samples[w.start_sample : w.start_sample + w.num_samples]) for w in windows]


def test_a_recording_becomes_a_transcript(pipeline, submit, job_of, windows_of) -> None:
    samples = noise(7.3)
    job_id = submit(samples)

    pipeline.run()

    job = job_of(job_id)
    assert (job.status, job.error_message) == (JobStatus.COMPLETED, None)
    windows = windows_of(job_id)
    assert sum(w.num_samples for w in windows) == len(samples)
    assert {w.status for w in windows} == {WindowStatus.DONE}
    with read_session(pipeline.context.sessions) as session:
        transcript = load_transcript(session, job_of(job_id))
    assert [s.text for s in transcript.segments] == expected_texts(windows, samples)
    assert transcript.duration_ms == 7300
    assert transcript.segments[-1].end_ms == 7300
    assert job.windows_done == job.windows_total == len(windows)
    assert job.coverage["gaps"] == []
    assert job.coverage["recognised_ms"] == 7300
    written = json.loads(pipeline.context.storage.read(job.transcript_key))
    assert written["text"] == transcript.text == join_texts(expected_texts(windows, samples))


def test_nothing_of_the_windows_is_left_in_storage(pipeline, submit) -> None:
    submit()
    pipeline.run()
    assert list(pipeline.context.storage.list("windows/")) == []


def test_events_have_gapless_numbers_and_tell_every_segment_once_in_order(
    pipeline, submit, windows_of, events_of
) -> None:
    samples = noise(6.0)
    job_id = submit(samples)

    pipeline.run()

    events = events_of(job_id)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    segments = [e.data["text"] for e in events if e.type == "transcript.segment"]
    assert segments == expected_texts(windows_of(job_id), samples)
    assert [e.type for e in events[-2:]] == ["transcript.text.done", "job.completed"]
    assert events[-2].data["text"] == join_texts(segments)
    published = [(e.seq, e.type) for e in pipeline.events.published]
    assert published == [(e.seq, e.type) for e in events]


def test_recognition_keeps_up_with_decoding_and_waits_for_its_end(
    pipeline, submit, job_of, windows_of, events_of
) -> None:
    samples = noise(16.0)
    job_id = submit(samples)
    seen: list[tuple[int, int, str]] = []

    def recognise_at_once(_adapter: str, *, count: int = 1) -> None:
        pipeline.engine.run()
        job = job_of(job_id)
        seen.append((job.windows_done, job.windows_total, job.stage))

    pipeline.messages.wake = recognise_at_once
    pipeline.run()

    assert len(seen) > 1
    assert all(done == total > 0 for done, total, _ in seen)
    assert {stage for _, _, stage in seen[:-1]} == {"prepare"}  # all done, but not all known
    assert job_of(job_id).status == JobStatus.COMPLETED
    told = [e.data["text"] for e in events_of(job_id) if e.type == "transcript.segment"]
    assert told == expected_texts(windows_of(job_id), samples)
