from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.orm import Session, sessionmaker

from core.db import unit_of_work
from core.ids import new_id
from core.signing import new_secret
from lifecycle.jobs import fail_job, lock_job
from models import ApiKey, Delivery, Job, Media, WebhookEndpoint
from tests.integration.webhooks.receiver import Receiver, serving

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Publisher:
    """Counts what is published."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.nudges = 0

    def publish(self, *events: Any) -> None:
        self.events += events

    def deliveries_due(self) -> None:
        self.nudges += 1


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving() as receiver:
        yield receiver


class World:
    """A key, its jobs and endpoints in a real database."""

    def __init__(self, sessions: sessionmaker[Session], publisher: Publisher) -> None:
        self.sessions = sessions
        self.publisher = publisher
        self.key_id = self.key()

    def key(self) -> UUID:
        key_id = new_id()
        with unit_of_work(self.sessions) as uow:
            uow.session.add(
                ApiKey(id=key_id, name="k", prefix="sk", key_hash=key_id.hex, created_at=NOW)
            )
        return key_id

    def job(self, **columns: Any) -> UUID:
        key_id = columns.pop("key_id", self.key_id)
        with unit_of_work(self.sessions) as uow:
            media = Media(
                key_id=key_id,
                storage_key=f"media/{new_id()}",
                filename="Zürich 会議.wav",
                size_bytes=5,
                created_at=NOW,
            )
            job = Job(
                key_id=key_id,
                media=media,
                model="whisper-base",
                options={},
                priority=10,
                created_at=NOW,
                **columns,
            )
            uow.session.add(job)
        return job.id

    def endpoint(self, url: str, **columns: Any) -> UUID:
        with unit_of_work(self.sessions) as uow:
            endpoint = WebhookEndpoint(
                **{"key_id": self.key_id, "url": url, "secret": new_secret(), "created_at": NOW}
                | columns
            )
            uow.session.add(endpoint)
        return endpoint.id

    def fail(self, job_id: UUID, *, now: datetime | None = None) -> None:
        with unit_of_work(self.sessions) as uow:
            job = lock_job(uow.session, job_id)
            assert job is not None
            fail_job(
                uow,
                self.publisher,
                job,
                error_code="media_undecodable",
                error_message="könnte nicht",
                now=now or datetime.now(UTC),
            )

    def deliveries(self) -> list[Delivery]:
        with self.sessions() as session:
            return list(session.query(Delivery).order_by(Delivery.id))

    def get(self, model: type[Any], key: Any) -> Any:
        with self.sessions() as session:
            return session.get(model, key)


@pytest.fixture
def world(sessions: sessionmaker[Session], publisher: Publisher) -> World:
    return World(sessions, publisher)
