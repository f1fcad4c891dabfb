"""The database, for commands that work on it directly."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.orm import Session, sessionmaker

from core.db import make_engine, make_sessions
from core.errors import ServiceUnavailable
from core.settings import Settings


@contextmanager
def open_database(settings: Settings) -> Iterator[sessionmaker[Session]]:
    """Provide a session factory.

    Raises:
        ServiceUnavailable: The database does not answer, or its tables are not there.
    """
    engine = make_engine(settings.database, sealer=settings.sealer)
    try:
        yield make_sessions(engine)
    except (OperationalError, ProgrammingError) as exc:
        raise ServiceUnavailable(explain(exc)) from exc
    finally:
        engine.dispose()


def explain(error: DBAPIError) -> str:
    """Return one line on why the database cannot be used."""
    reason = str(error.orig).strip().splitlines()[0]
    if "no such table" in reason or "does not exist" in reason:
        return f"The database is not prepared ({reason}). Run: scriptorium migrate"
    return f"The database does not answer: {reason}"
