"""Rows made directly, for tests of single transactions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert

from core.db import unit_of_work
from core.ids import new_id
from models import LOCAL_KEY_ID, ApiKey, Job, JobStage, JobStatus, Media, Window

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def make_job(sessions) -> Callable[..., UUID]:
    """Return a function that inserts a running job with pending windows."""

    def make(
        num_windows: int = 1,
        *,
        key_id: UUID = LOCAL_KEY_ID,
        priority: int = 10,
        num_samples: int = 16_000,
        adapter: str = "whisper",
        model: str = "base",
        **columns: Any,
    ) -> UUID:
        job_id, media_id = new_id(), new_id()
        with unit_of_work(sessions) as uow:
            if uow.session.get(ApiKey, key_id) is None:
                uow.session.add(
                    ApiKey(id=key_id, name="k", prefix="k", key_hash=str(key_id), created_at=NOW)
                )
            uow.session.add(Media(id=media_id, key_id=key_id, storage_key="m", created_at=NOW))
            uow.session.flush()
            uow.session.add(
                Job(
                    **{
                        "id": job_id,
                        "key_id": key_id,
                        "media_id": media_id,
                        "model": model,
                        "adapter": adapter,
                        "options": {},
                        "priority": priority,
                        "created_at": NOW,
                        "started_at": NOW,
                        "status": JobStatus.RUNNING,
                        "stage": JobStage.RECOGNISE,
                        "prepared_at": NOW,
                        "windows_total": num_windows,
                        "audio_ms_total": num_windows * num_samples // 16,
                        **columns,
                    }
                )
            )
            uow.session.flush()
            if num_windows:
                uow.session.execute(
                    insert(Window),
                    [
                        {
                            "id": new_id(),
                            "job_id": job_id,
                            "index": index,
                            "start_sample": index * num_samples,
                            "num_samples": num_samples,
                            "object_key": "o",
                            "byte_offset": 0,
                            "num_bytes": 1,
                            "adapter": adapter,
                            "model": model,
                            "priority": priority,
                            "key_id": key_id,
                        }
                        for index in range(num_windows)
                    ],
                )
        return job_id

    return make
