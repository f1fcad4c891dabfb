"""Who loses the key of the seals gets the service back without what it sealed, and no more."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import select, update
from typer.testing import CliRunner

from cli.main import app
from core.db import make_engine, make_sessions, read_session, unit_of_work
from core.errors import SealBroken
from core.sealing import Sealer
from migrations.forget import FORGOTTEN_CODE
from migrations.run import migrate, migrate_url, migrate_without
from models import (
    LOCAL_KEY_ID,
    ApiKey,
    Batch,
    BatchItem,
    BatchStatus,
    Delivery,
    ItemStatus,
    Job,
    Media,
    WebhookEndpoint,
)

LOST, KEPT = Sealer(["l" * 32]), Sealer(["k" * 32])
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path) -> str:
    """A database with tables."""
    found = f"sqlite:///{tmp_path / 'scriptorium.db'}"
    if request.param == "postgres":
        found = request.getfixturevalue("empty_postgres_url")
    migrate_url(found)
    return found


def fill(url: str, sealer: Sealer, name: str) -> None:
    """Add one row of every kind that holds secrets, sealed by `sealer`."""
    engine = make_engine(url, sealer=sealer)
    with unit_of_work(make_sessions(engine)) as uow:
        key = ApiKey(name=name, prefix=name, key_hash=name, webhook_secret=name, created_at=AT)
        uow.session.add(key)
        uow.session.flush()
        endpoint = WebhookEndpoint(
            key_id=key.id,
            url="https://a.b",
            description=name,
            secret=name,
            previous_secret=name,
            previous_secret_expires_at=AT,
            created_at=AT,
        )
        media = Media(
            key_id=key.id,
            storage_key=name,
            source_url="https://a.b",
            source_headers={"x": name},
            created_at=AT,
        )
        done = Batch(
            key_id=key.id,
            prefix=f"{name}-read/",
            defaults={"language": "fr"},
            webhook_secret=name,
            num_lines=2,
            next_index=2,
            created_at=AT,
        )
        begun = Batch(
            key_id=key.id, prefix=f"{name}-unread/", defaults={"language": "fr"}, created_at=AT
        )
        uow.session.add_all([endpoint, media, done, begun])
        uow.session.flush()
        job = Job(
            key_id=key.id,
            media_id=media.id,
            model="m",
            options={},
            priority=1,
            webhook_secret=name,
            created_at=AT,
        )
        uow.session.add(job)
        uow.session.flush()
        uow.session.add_all(
            [
                BatchItem(batch_id=done.id, index=0, line={"a": name}),  # waits for its retry
                BatchItem(
                    batch_id=done.id,
                    index=1,
                    status=ItemStatus.FAILED,
                    error_code="e",
                    line={"a": name},
                ),
                Delivery(
                    key_id=key.id,
                    event_id=job.id,
                    event_type="job.completed",
                    subject_id=job.id,
                    target_key="-",
                    target_host="https://a.b",
                    url="https://a.b",
                    secret=name,
                    body=b"{}",
                    next_attempt_at=AT,
                    created_at=AT,
                ),
            ]
        )
    engine.dispose()


def seal_first_line(url: str, name: str, sealer: Sealer) -> None:
    engine = make_engine(url, sealer=sealer)
    with unit_of_work(make_sessions(engine)) as uow:
        batch_id = select(Batch.id).where(Batch.prefix == f"{name}-read/").scalar_subquery()
        first = (BatchItem.batch_id == batch_id, BatchItem.index == 0)
        uow.session.execute(
            update(BatchItem).where(*first).values(line={"a": name}),
            execution_options={"synchronize_session": False},
        )
    engine.dispose()


def read(url: str, name: str) -> dict[str, object]:
    """Return what the service finds of the rows called `name`."""
    engine = make_engine(url, sealer=KEPT)
    with read_session(make_sessions(engine)) as session:
        key = session.scalars(select(ApiKey).where(ApiKey.name == name)).one()

        def one(model, *where):
            return session.scalars(select(model).where(model.key_id == key.id, *where)).one()

        endpoint = one(WebhookEndpoint)
        read_one = one(Batch, Batch.prefix == f"{name}-read/")
        unread = one(Batch, Batch.prefix == f"{name}-unread/")
        items = session.scalars(
            select(BatchItem).where(BatchItem.batch_id == read_one.id).order_by(BatchItem.index)
        ).all()
        found = {
            "key": key.webhook_secret,
            "endpoint": endpoint.secret,
            "endpoint before": endpoint.previous_secret,
            "endpoint is disabled": endpoint.disabled_at is not None,
            "job": one(Job).webhook_secret,
            "media": one(Media).source_headers,
            "delivery": one(Delivery).secret,
            "batch": read_one.webhook_secret,
            "batch, options": read_one.defaults,
            "batches": (read_one.status, unread.status, unread.error_code),
            "lines": [(item.status, item.error_code, item.line) for item in items],
        }
    engine.dispose()
    return found


def test_what_no_key_opens_is_forgotten_and_the_rest_is_kept(url) -> None:
    fill(url, LOST, "lost")
    fill(url, KEPT, "kept")
    seal_first_line(url, "lost", KEPT)  # without its batch's options it is lost all the same
    before = read(url, "kept")
    with pytest.raises(SealBroken):
        migrate_url(url, sealer=KEPT)

    losses = migrate_without(url, sealer=KEPT)

    assert [loss.count for loss in losses] == [1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert read(url, "kept") == before
    after = read(url, "lost")
    assert after.pop("endpoint").startswith("whsec_")
    assert after == {
        "key": None,
        "endpoint before": None,
        "endpoint is disabled": False,
        "job": None,
        "media": None,
        "delivery": None,
        "batch": None,
        "batch, options": {},
        # Lines that lost their options are transcribed with no others.
        "batches": (BatchStatus.QUEUED, BatchStatus.FAILED, FORGOTTEN_CODE),
        "lines": [(ItemStatus.FAILED, FORGOTTEN_CODE, None), (ItemStatus.FAILED, "e", None)],
    }
    migrate_url(url, sealer=KEPT)
    assert migrate_without(url, sealer=KEPT) == []


def test_the_command_says_what_it_forgot_and_the_service_starts_again(
    settings, tmp_path, monkeypatch
) -> None:
    chosen = settings(data_dir=tmp_path)
    url = chosen.database
    migrate(chosen)
    fill(url, LOST, "lost")
    with pytest.raises(SealBroken, match="--forget-secrets"):
        migrate(chosen)

    monkeypatch.setenv("SCRIPTORIUM_DATA_DIR", str(tmp_path))
    result = CliRunner().invoke(app, ["migrate", "--forget-secrets"])

    assert result.exit_code == 0
    assert "Forgotten: secrets of webhook endpoints: 1 (replaced" in result.output
    assert "Forgotten: lines of batches: 2 (" in result.output
    migrate(chosen)
    again = CliRunner().invoke(app, ["migrate", "--forget-secrets"])
    assert "nothing was forgotten" in again.output
    engine = make_engine(url)
    with read_session(make_sessions(engine)) as session:
        owners = session.scalars(select(ApiKey.id)).all()
        assert LOCAL_KEY_ID in owners
        assert len(owners) == 2
    engine.dispose()
