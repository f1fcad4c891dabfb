"""One set of migrations makes, checks and removes the tables on both databases."""

import threading
from datetime import UTC, datetime

import pytest
from alembic import command
from sqlalchemy import inspect, select, text
from sqlalchemy.exc import OperationalError

from core.db import (
    make_engine,
    make_sessions,
    read_session,
    schema_transaction,
    unit_of_work,
)
from core.errors import SealBroken
from core.sealing import Sealer
from migrations.run import make_config, migrate, migrate_url
from models import LOCAL_KEY_ID, ApiKey, Base, Batch, BatchItem, WebhookEndpoint


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


@pytest.fixture
def engine(empty_url: str):
    engine = make_engine(empty_url)
    yield engine
    engine.dispose()


def tables(engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


def test_up_down_up_gives_the_tables_of_the_models(empty_url, engine) -> None:
    wanted = set(Base.metadata.tables)
    migrate_url(empty_url)
    assert tables(engine) == wanted
    with schema_transaction(engine) as connection:
        command.downgrade(make_config(connection), "base")
    assert tables(engine) == set()
    migrate_url(empty_url)
    assert tables(engine) == wanted


def test_the_models_say_nothing_that_the_migrations_do_not(empty_url, engine) -> None:
    migrate_url(empty_url)
    with schema_transaction(engine) as connection:
        command.check(make_config(connection))


def test_secrets_are_sealed_and_opened_again_on_the_way_back(empty_url, engine) -> None:
    def secrets(url_engine) -> tuple[str, ...]:
        with url_engine.connect() as connection:
            query = "SELECT secret, previous_secret FROM webhook_endpoints"
            return tuple(connection.exec_driver_sql(query).one())

    def read(sealer: Sealer) -> tuple[str, str | None]:
        own = make_engine(empty_url, sealer=sealer)
        with read_session(make_sessions(own)) as session:
            endpoint = session.scalars(select(WebhookEndpoint)).one()
            found = endpoint.secret, endpoint.previous_secret
        own.dispose()
        return found

    plain = ("whsec_" + "a" * 190, "whsec_b")  # as long as one may be
    migrate_url(empty_url, "0005")
    with schema_transaction(engine) as connection:
        connection.execute(
            text(
                "INSERT INTO webhook_endpoints (id, key_id, url, events, secret, previous_secret, "
                "previous_secret_expires_at, failures, created_at) SELECT id, id, 'https://a.b', "
                "'[]', :one, :two, created_at, 0, created_at FROM api_keys"
            ),
            {"one": plain[0], "two": plain[1]},
        )
    migrate_url(empty_url)
    assert secrets(engine) == plain  # without a key

    old, new = "o" * 32, "n" * 32
    migrate_url(empty_url, sealer=Sealer([old]))
    first = secrets(engine)
    migrate_url(empty_url, sealer=Sealer([old]))
    assert secrets(engine) == first
    assert not any("whsec" in stored for stored in first)
    assert read(Sealer([old])) == plain

    migrate_url(empty_url, sealer=Sealer([new, old]))
    assert read(Sealer([new])) == plain
    for wrong in (Sealer([old]), Sealer()):  # by mistake
        with pytest.raises(SealBroken):
            migrate_url(empty_url, sealer=wrong)
    assert read(Sealer([new])) == plain

    back = make_engine(empty_url, sealer=Sealer([new]))
    with schema_transaction(back) as connection:
        command.downgrade(make_config(connection), "0005")
    back.dispose()
    assert secrets(engine) == plain


def test_objects_with_secrets_are_sealed_and_opened_likewise(empty_url, engine) -> None:
    stored = ("SELECT defaults FROM batches", "SELECT line FROM batch_items")

    def in_rows() -> str:
        with engine.connect() as connection:
            return " ".join(str(connection.execute(text(query)).scalar_one()) for query in stored)

    def read(sealer: Sealer) -> tuple[dict, dict | None]:
        own = make_engine(empty_url, sealer=sealer)
        with read_session(make_sessions(own)) as session:
            batch, item = session.scalars(select(Batch)).one(), session.scalars(select(BatchItem))
            found = batch.defaults, item.one().line
        own.dispose()
        return found

    plain = {"webhook_secret": "whsec_a"}, {"media_headers": {"X-Key": "whsec_b"}}
    migrate_url(empty_url)  # without a key
    with unit_of_work(make_sessions(engine)) as uow:
        at = datetime.now(UTC)
        batch = Batch(key_id=LOCAL_KEY_ID, prefix="a/", defaults=plain[0], created_at=at)
        uow.session.add(batch)
        uow.session.flush()
        uow.session.add(BatchItem(batch_id=batch.id, index=0, line=plain[1]))
    assert "whsec_a" in in_rows()
    old, new = "o" * 32, "n" * 32
    for sealer, reader in ((Sealer([old]), Sealer([old])), (Sealer([new, old]), Sealer([new]))):
        migrate_url(empty_url, sealer=sealer)
        first = in_rows()
        assert "whsec" not in first
        migrate_url(empty_url, sealer=sealer)
        assert in_rows() == first
        assert read(reader) == plain

    back = make_engine(empty_url, sealer=Sealer([new]))
    with schema_transaction(back) as connection:
        command.downgrade(make_config(connection), "0005")
    back.dispose()
    assert read(Sealer()) == plain


def test_the_local_key_is_there_from_the_start(empty_url, engine) -> None:
    migrate_url(empty_url)
    with read_session(make_sessions(engine)) as session:
        assert session.scalars(select(ApiKey.id)).all() == [LOCAL_KEY_ID]


def test_processes_that_migrate_at_once_take_turns(empty_url, engine) -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            migrate_url(empty_url)
        except Exception as exc:  # noqa: BLE001
            errors.append(exc)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert tables(engine) == set(Base.metadata.tables)


def test_a_migration_that_fails_leaves_nothing_behind(empty_url, engine) -> None:
    with pytest.raises(RuntimeError), schema_transaction(engine) as connection:
        command.upgrade(make_config(connection), "head")
        raise RuntimeError
    assert tables(engine) == set()


def test_migrating_makes_the_data_folder(settings, tmp_path) -> None:
    chosen = settings(data_dir=tmp_path / "new" / "folder")
    migrate(chosen)
    assert (chosen.data_path / "scriptorium.db").is_file()


def test_a_migration_does_not_wait_forever_for_a_table_in_use(empty_postgres_url) -> None:
    engine = make_engine(empty_postgres_url)
    try:
        with schema_transaction(engine) as connection:
            command.upgrade(make_config(connection), "head")
            assert connection.scalar(text("SHOW lock_timeout")) == "10s"
    finally:
        engine.dispose()


def test_foreign_keys_are_checked_and_on_again_after_a_migration_on_sqlite(tmp_path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    migrate_url(url)
    engine = make_engine(url)
    with pytest.raises(Exception, match="foreign_key_check"), schema_transaction(engine) as c:
        c.exec_driver_sql("INSERT INTO events VALUES ('no-job', 1, 'x', '{}', '2026-01-01')")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("SELECT count(*) FROM events").scalar() == 0
    engine.dispose()


def test_a_locked_database_is_an_operational_error(tmp_path, monkeypatch) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    holder, waiter = make_engine(url), make_engine(url)
    with schema_transaction(holder), waiter.connect() as connection:
        connection.connection.dbapi_connection.execute("PRAGMA busy_timeout=50")  # type: ignore[union-attr]
        with pytest.raises(OperationalError, match="locked"):
            connection.exec_driver_sql("SELECT 1")
    holder.dispose()
    waiter.dispose()
