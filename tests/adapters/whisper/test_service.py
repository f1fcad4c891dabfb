"""The default checkpoint behind the whole pipeline: text that is told while it is decoded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from core.db import make_engine, make_sessions, read_session
from core.events import EventType
from core.options import TranscribeOptions
from core.settings import Settings
from lifecycle.transcripts import load_transcript
from models import Event, Job, JobStatus
from tests.integration.workers.conftest import make_pipeline
from tests.support.pipeline import Pipeline, wav
from workers.catalog import FolderCatalog
from workers.engine import Engine

MODEL = "whisper"


@pytest.fixture
def pipeline(
    sqlite_url: str, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pipeline]:
    monkeypatch.setattr("workers.runner.INTERVAL_S", 0.005)
    sessions = make_sessions(make_engine(sqlite_url))
    settings = Settings(data_dir=tmp_path, models=f"{MODEL}={checkpoint}", device="cpu", threads=1)
    plain = make_pipeline(sessions, tmp_path)
    context = replace(plain.context, settings=settings, catalog=FolderCatalog(settings))
    engine = Engine(context, adapter="whisper", models=[MODEL], name="test")
    yield replace(plain, context=context, engine=engine)
    sessions.kw["bind"].dispose()


def test_deltas_join_to_the_final_text(pipeline: Pipeline, speech: dict[str, np.ndarray]) -> None:
    pause = np.zeros(12_000, np.float32)
    samples = np.concatenate([speech["en"], pause, speech["en"], pause, speech["en"]])
    job_id = pipeline.submit(
        wav(samples), model=MODEL, options=TranscribeOptions(language="en", stream=True)
    )
    pipeline.run()
    with read_session(pipeline.context.sessions) as session:
        job = session.get_one(Job, job_id)
        assert job.status == JobStatus.COMPLETED, job.error_message
        rows = select(Event).where(Event.job_id == job_id).order_by(Event.seq)
        events = list(session.scalars(rows))
        transcript = load_transcript(session, job)
    assert job.warnings == []
    deltas = [e.data["delta"] for e in events if e.type == EventType.TEXT_DELTA]
    done = [e.data["text"] for e in events if e.type == EventType.TEXT_DONE]
    assert done == ["".join(deltas)] == [transcript.text]
    assert job.windows_total > 1
    assert len(deltas) > job.windows_total  # before windows were done
