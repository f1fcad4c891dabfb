"""A whole pipeline on each database, with files for storage and a fake speech model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import select

from adapters.base import AdapterSpec
from core.db import read_session, unit_of_work
from core.options import Priority, TranscribeOptions
from core.settings import Settings
from core.storage import open_storage
from models import LOCAL_KEY_ID, ApiKey, Event, Job, Window
from tests.support.pipeline import (
    ADAPTER,
    MODEL,
    ChecksumAdapter,
    Clock,
    EventLog,
    MemoryCatalog,
    MessageLog,
    Pipeline,
    noise,
    wav,
)
from workers.context import WorkerContext
from workers.device import DeviceWatch
from workers.engine import Engine

WINDOW_MS = 1000


@pytest.fixture
def pipeline(sessions, tmp_path: Path) -> Pipeline:
    return make_pipeline(sessions, tmp_path)


def make_pipeline(
    sessions, tmp_path: Path, *, device: DeviceWatch | None = None, **settings: Any
) -> Pipeline:
    spec = AdapterSpec(name=ADAPTER, window_ms=WINDOW_MS, padded_ms=0, detects_by_vote=True)
    adapter = ChecksumAdapter(spec)
    messages, events, clock = MessageLog(), EventLog(), Clock()
    context = WorkerContext(
        settings=Settings(
            **{"data_dir": tmp_path, "batch_windows": 4, "lease_s": 30.0, **settings}
        ),
        sessions=sessions,
        storage=open_storage((tmp_path / "objects").as_uri()),
        queue=messages,
        publisher=events,
        catalog=MemoryCatalog({MODEL: adapter}),
        device=device or DeviceWatch("cpu", on_loss=_no_loss),
        now=clock,
    )
    engine = Engine(context, adapter=ADAPTER, models=[MODEL], name="first")
    return Pipeline(
        context=context,
        adapter=adapter,
        messages=messages,
        events=events,
        clock=clock,
        engine=engine,
    )


def _no_loss() -> None:
    raise AssertionError("the CPU is never lost")


@pytest.fixture
def submit(pipeline: Pipeline) -> Callable[..., UUID]:
    """Return a function that submits a recording and returns the job's id."""

    def make(
        samples: np.ndarray | None = None,
        *,
        media: bytes | None = None,
        key_id: UUID = LOCAL_KEY_ID,
        priority: Priority = Priority.STANDARD,
        **options: Any,
    ) -> UUID:
        if media is None:
            media = wav(noise(5.0) if samples is None else samples)
        context = pipeline.context
        with unit_of_work(context.sessions) as uow:
            if uow.session.get(ApiKey, key_id) is None:
                uow.session.add(
                    ApiKey(
                        id=key_id,
                        name="test",
                        prefix="test",
                        key_hash=str(key_id),
                        created_at=context.now(),
                    )
                )
        return pipeline.submit(
            media,
            options=TranscribeOptions(**{"language": "en", "vad": False, **options}),
            key_id=key_id,
            priority=priority,
        )

    return make


@pytest.fixture
def job_of(pipeline: Pipeline) -> Callable[[UUID], Job]:
    def load(job_id: UUID) -> Job:
        with read_session(pipeline.context.sessions) as session:
            return session.get_one(Job, job_id)

    return load


@pytest.fixture
def windows_of(pipeline: Pipeline) -> Callable[[UUID], list[Window]]:
    def load(job_id: UUID) -> list[Window]:
        with read_session(pipeline.context.sessions) as session:
            return list(
                session.scalars(
                    select(Window).where(Window.job_id == job_id).order_by(Window.index)
                )
            )

    return load


@pytest.fixture
def events_of(pipeline: Pipeline) -> Callable[[UUID], list[Event]]:
    def load(job_id: UUID) -> list[Event]:
        with read_session(pipeline.context.sessions) as session:
            return list(
                session.scalars(select(Event).where(Event.job_id == job_id).order_by(Event.seq))
            )

    return load
