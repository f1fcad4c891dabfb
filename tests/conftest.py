"""Fixtures that every suite shares.

Real services start when a test first asks for one, once a session, and stop at its end. Nothing is
imported for them before: unit tests must start at once. A service that does not start is a failure,
never a skip.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from core.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, sessionmaker

    from core.storage import Storage
    from tests.support.postgres import PostgresServer
    from tests.support.swift import SwiftServer

SettingsFactory = Callable[..., Settings]

SEAL_KEY = "tests seal what is secret in their databases"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings of whoever runs the tests out of them."""
    for name in list(os.environ):
        if name.startswith("SCRIPTORIUM_"):
            monkeypatch.delenv(name)


@pytest.fixture
def settings(tmp_path: Path) -> SettingsFactory:
    """Return a factory of settings with everything in a temporary folder."""

    def make(**overrides: Any) -> Settings:
        return Settings(**{"data_dir": tmp_path / "data", **overrides})

    return make


@pytest.fixture(scope="session")
def postgres_server() -> Iterator["PostgresServer"]:
    """A Postgres server for the session."""
    from migrations.run import migrate_url
    from tests.support.postgres import postgres_server

    with postgres_server(migrate_url) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: "PostgresServer") -> Iterator[str]:
    """A Postgres database of this test's own, migrated and empty."""
    with postgres_server.migrated_database() as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_server: "PostgresServer") -> Iterator[str]:
    """A Postgres database of this test's own without tables."""
    with postgres_server.empty_database() as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    from migrations.run import migrate_url

    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrate_url(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database of this test's own, migrated and empty."""
    path = shutil.copyfile(sqlite_template, tmp_path / "test.db")
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database: the test runs once on each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def sessions(database_url: str) -> Iterator["sessionmaker[Session]"]:
    """A session factory on `database_url`."""
    from core.db import make_engine, make_sessions
    from core.sealing import Sealer

    engine = make_engine(database_url, sealer=Sealer([SEAL_KEY]))
    yield make_sessions(engine)
    engine.dispose()


@pytest.fixture(scope="session")
def _redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from tests.support.valkey import ValkeyServer

    with ValkeyServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server.url


@pytest.fixture
def redis_url(_redis_server: str) -> str:
    """An empty Redis."""
    from redis import Redis

    with Redis.from_url(_redis_server) as client:
        client.flushall()
    return _redis_server


@pytest.fixture(scope="session")
def s3_server() -> Iterator["SwiftServer"]:
    """An S3 server for the session; tests that use it directly set its `environment`."""
    from tests.support.swift import swift_server

    with swift_server() as server:
        yield server


@pytest.fixture
def s3_url(s3_server: "SwiftServer", monkeypatch: pytest.MonkeyPatch) -> str:
    """A storage URL of this test's own; credentials are in the environment."""
    from tests.support.swift import BUCKET

    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
def s3_settings(
    s3_url: str, s3_server: "SwiftServer", settings: SettingsFactory
) -> SettingsFactory:
    """Return a factory of settings whose storage is S3."""

    def make(**overrides: Any) -> Settings:
        return settings(
            **{"storage_url": s3_url, "s3_endpoint_url": s3_server.endpoint_url, **overrides}
        )

    return make


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> "Storage":
    """An empty storage: the test runs once on each kind."""
    from core.storage import open_storage

    if request.param == "local":
        return open_storage((tmp_path / "storage").as_uri())
    make: SettingsFactory = request.getfixturevalue("s3_settings")
    chosen = make()
    return open_storage(chosen.storage, s3_endpoint_url=chosen.s3_endpoint_url)
