"""The default checkpoint behind the whole pipeline: text that is told while it is decoded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from core.db import make_engine, make_sessions, read_session, unit_of_work
from core.events import EventType
from core.options import TranscribeOptions
from core.settings import Settings
from lifecycle.jobs import submit_job
from lifecycle.transcripts import load_transcript
from models import LOCAL_KEY_ID, Event, Job, JobStatus, Media
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
    context = pipeline.context
    context.storage.put("media/one", wav(samples))
    with unit_of_work(context.sessions) as uow:
        job_id = submit_job(
            uow,
            context.queue,
            context.publisher,
            key_id=LOCAL_KEY_ID,
            media=Media(key_id=LOCAL_KEY_ID, storage_key="media/one", created_at=context.now()),
            model=MODEL,
            options=TranscribeOptions(language="en", stream=True),
            priority=0,
            now=context.now(),
        ).id
    pipeline.run()
    with read_session(context.sessions) as session:
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
