"""The tiny checkpoint behind the whole pipeline: streamed text, word times, real segments."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import jiwer
import numpy as np
import pytest
from sqlalchemy import select

from core.db import make_engine, make_sessions, read_session
from core.events import EventType
from core.formats import get_format
from core.options import TranscribeOptions
from core.settings import Settings
from core.transcript import Transcript
from lifecycle.transcripts import load_transcript
from models import Event, Job, JobStatus
from tests.adapters.qwen3.conftest import ALIGNER, ASR
from tests.integration.workers.conftest import make_pipeline
from tests.support.pipeline import Pipeline, wav
from workers.catalog import FolderCatalog
from workers.engine import Engine

MODEL = "tiny"
LONG = {"english": ("05", "03", "01", "05"), "chinese": ("15", "13", "11", "15")}
"""Clips that together need several windows of 10 s, about what the checkpoint learnt to read."""


@pytest.fixture
def serve(sqlite_url: str, tmp_path: Path, monkeypatch) -> Callable[..., Pipeline]:
    """Return a function that starts a pipeline with the tiny checkpoint."""
    monkeypatch.setattr("workers.runner.INTERVAL_S", 0.005)
    sessions = make_sessions(make_engine(sqlite_url))

    def start(*, aligner: Path | None = ALIGNER, asr: Path = ASR) -> Pipeline:
        settings = Settings(
            data_dir=tmp_path,
            models=f"{MODEL}={asr}",
            aligner=None if aligner is None else str(aligner),
            device="cpu",
            threads=1,
        )
        pipeline = make_pipeline(sessions, tmp_path)
        context = replace(pipeline.context, settings=settings, catalog=FolderCatalog(settings))
        engine = Engine(context, adapter="qwen3_asr", models=[MODEL], name="test")
        return replace(pipeline, context=context, engine=engine)

    yield start
    sessions.kw["bind"].dispose()


@pytest.fixture
def short_windows(tmp_path: Path) -> Path:
    """The checkpoint with windows of 10 s."""
    folder = tmp_path / "short"
    shutil.copytree(ASR, folder)
    config = json.loads((folder / "config.json").read_text())
    config["scriptorium"] = {"window_ms": 10_000}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def transcribe(pipeline: Pipeline, samples: np.ndarray, **options: Any) -> UUID:
    chosen = TranscribeOptions(**{"vad": False, **options})
    job_id = pipeline.submit(wav(samples), model=MODEL, options=chosen)
    pipeline.run()
    return job_id


def result(pipeline: Pipeline, job_id: UUID) -> tuple[Job, Transcript, list[Event]]:
    with read_session(pipeline.context.sessions) as session:
        job = session.get_one(Job, job_id)
        assert job.status == JobStatus.COMPLETED, job.error_message
        rows = select(Event).where(Event.job_id == job_id).order_by(Event.seq)
        return job, load_transcript(session, job), list(session.scalars(rows))


@pytest.mark.parametrize("script", LONG)
def test_a_long_recording_is_streamed_with_words_and_real_segments(
    serve, clips, short_windows, script
) -> None:
    pause = np.zeros(8_000, np.float32)
    parts = [clips[number] for number in LONG[script]]
    samples = np.concatenate([piece for part in parts for piece in (part.samples, pause)])
    pipeline = serve(asr=short_windows)

    job_id = transcribe(pipeline, samples, stream=True, timestamps="word")

    job, transcript, events = result(pipeline, job_id)
    assert job.windows_total > 1
    assert job.warnings == []
    deltas = [e.data["delta"] for e in events if e.type == EventType.TEXT_DELTA]
    done = [e.data["text"] for e in events if e.type == EventType.TEXT_DONE]
    assert done == ["".join(deltas)] == [transcript.text]
    assert len(deltas) > job.windows_total  # before windows were done
    assert not any(
        tag in text for text in (*deltas, *done) for tag in ("<", "asr_text", "language ")
    )
    rate = jiwer.wer if script == "english" else jiwer.cer
    truth = (" " if script == "english" else "").join(part.text for part in parts)
    assert rate(truth, transcript.text) <= 0.05

    assert len(transcript.segments) > job.windows_total
    for segment in transcript.segments:
        assert segment.words
        for word in segment.words:
            assert segment.start_ms <= word.start_ms < word.end_ms <= segment.end_ms
    assert transcript.segments[-1].end_ms <= transcript.duration_ms
    document = json.loads(get_format("verbose_json").render(transcript))
    assert [s["text"].strip() for s in document["segments"]] == [
        s.text for s in transcript.segments
    ]
    assert len(document["words"]) == sum(len(s.words) for s in transcript.segments)


def test_without_an_aligner_the_transcript_says_that_words_are_missing(serve, clips) -> None:
    pipeline = serve(aligner=None)
    job_id = transcribe(pipeline, clips["03"].samples, timestamps="word")
    job, transcript, _ = result(pipeline, job_id)
    assert job.warnings == list(transcript.warnings) == ["words_no_aligner"]
    assert transcript.text == clips["03"].text
    assert not any(segment.words for segment in transcript.segments)


def test_a_transcript_made_without_the_aligner_is_not_reused_with_it(serve, clips) -> None:
    samples = clips["03"].samples
    transcribe(serve(aligner=None), samples, timestamps="word")
    pipeline = serve()
    job, transcript, _ = result(pipeline, transcribe(pipeline, samples, timestamps="word"))
    assert job.reused_from is None
    assert job.warnings == []
    assert all(segment.words for segment in transcript.segments)


@pytest.mark.parametrize("is_relative", [False, True])
def test_the_aligner_may_be_named_by_any_path(serve, clips, monkeypatch, is_relative) -> None:
    aligner = ALIGNER
    if is_relative:
        monkeypatch.chdir(ALIGNER.parent)
        aligner = Path(os.curdir) / ALIGNER.name
    described = serve(aligner=aligner).context.catalog.describe(MODEL)
    assert described.revision == serve().context.catalog.describe(MODEL).revision
    assert "+" in described.revision
