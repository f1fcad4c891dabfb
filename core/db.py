"""The only module that opens and commits transactions."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from core.sealing import Sealer
from core.sqlite import BUSY_TIMEOUT_S, use_wal

Effect = Callable[[], None]

READ_ONLY = "scriptorium_read_only"
_SEALER = "scriptorium_sealer"
SCHEMA_LOCK = 0x5C21_7042
"""Any number, as long as every version uses the same one."""


@dataclass
class UnitOfWork:
    """One transaction and what must happen once it is durable."""

    session: Session
    effects: list[Effect] = field(default_factory=list)

    def after_commit(self, effect: Effect) -> None:
        """Run `effect` after the commit; drop it on rollback.

        Messages sent inside a transaction can overtake it or outlive its rollback. An effect must
        not raise: the caller's work is already durable, and whatever the effect was for must have
        a second way to happen.
        """
        self.effects.append(effect)


@contextmanager
def unit_of_work(factory: sessionmaker[Session]) -> Iterator[UnitOfWork]:
    """Commit on success, roll back on error, then run the effects in order.

    The only place in the project that commits.
    """
    with factory.begin() as session:
        uow = UnitOfWork(session)
        yield uow
    for effect in uow.effects:
        effect()


@contextmanager
def read_session(factory: sessionmaker[Session]) -> Iterator[Session]:
    """Provide a session that only reads; nothing it does is committed.

    On SQLite its transaction is deferred, so that readers never wait for a writer.
    """
    with factory() as session:
        session.connection(execution_options={READ_ONLY: True})
        yield session


@contextmanager
def schema_transaction(engine: Engine) -> Iterator[Connection]:
    """Provide one exclusive transaction for a change of the schema, and commit it.

    Two processes that migrate at once take turns: on Postgres by an advisory lock, on SQLite by
    its write lock (DDL is transactional on both). SQLite's foreign keys are off meanwhile, because
    Alembic's batch mode replaces tables, and dropping the old one would cascade.

    Raises:
        IntegrityError: Rows that lost what they refer to (SQLite only; Postgres checks by itself).
    """
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            raw: Any = connection.connection.dbapi_connection
            raw.execute("PRAGMA foreign_keys=OFF")
            try:
                with connection.begin():
                    yield connection
                    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
                    if orphans:
                        raise IntegrityError("PRAGMA foreign_key_check", None, Exception(orphans))
            finally:
                raw.execute("PRAGMA foreign_keys=ON")
        else:
            with connection.begin():
                connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))
                yield connection


def make_engine(url: str, *, pool_size: int = 5, sealer: Sealer | None = None) -> Engine:
    """Return an engine for a `sqlite:///` or `postgresql+psycopg://` URL.

    SQLite gets WAL, foreign keys, a 30 s busy timeout, and transactions that begin IMMEDIATE: a
    deferred one that turns into a writer fails at once under contention (measured: 421 lock errors
    against none).

    Args:
        sealer: Of columns that are secrets; see `models.base.Sealed`.
    """
    if url.startswith("sqlite"):
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_immediate)
    else:
        engine = create_engine(
            normalise_url(url), pool_size=pool_size, max_overflow=10, pool_pre_ping=True
        )
    setattr(engine.dialect, _SEALER, sealer or Sealer())  # all that a column type gets to see
    return engine


def sealer_of(dialect: Dialect) -> Sealer:
    """Return what seals the columns of a `make_engine`'s database."""
    sealer: Sealer = getattr(dialect, _SEALER)
    return sealer


def normalise_url(url: str) -> str:
    """Return `url` with the psycopg driver named where only "postgres(ql)://" was given."""
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def make_sessions(engine: Engine) -> sessionmaker[Session]:
    """Return a session factory whose rows stay readable after the commit."""
    return sessionmaker(engine, expire_on_commit=False)


def is_sqlite(session: Session) -> bool:
    """Whether `session` talks to SQLite, which has no row locks."""
    return session.get_bind().dialect.name == "sqlite"


def _configure_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401
    connection.isolation_level = None  # SQLAlchemy's documented recipe: we emit BEGIN ourselves
    use_wal(connection)
    cursor = connection.cursor()
    # Whether deleted rows are written over is else up to whoever built the library.
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON", "secure_delete=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: Connection) -> None:
    is_read_only = connection.get_execution_options().get(READ_ONLY, False)
    statement = "BEGIN" if is_read_only else "BEGIN IMMEDIATE"
    # Past SQLAlchemy, which takes as long for it as for a SELECT; only its errors are wanted.
    raw: Any = connection.connection.driver_connection
    try:
        raw.execute(statement)
    except sqlite3.OperationalError as exc:
        raise OperationalError(statement, None, exc) from exc
