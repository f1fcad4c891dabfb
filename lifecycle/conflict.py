"""INSERT that steps aside for a row that is already there."""

from typing import Any

from sqlalchemy import literal
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from core.db import is_sqlite
from models import Base


def insert_or_ignore(session: Session, model: type[Base], values: dict[str, Any]) -> bool:
    """Insert one row unless a unique constraint forbids it; return whether it was inserted.

    On Postgres it waits for a concurrent transaction that inserted the same key, so that False
    means the other row is durable (or was made by this transaction).
    """
    insert = sqlite.insert if is_sqlite(session) else postgresql.insert
    statement = insert(model).values(values).on_conflict_do_nothing().returning(literal(1))
    # Not `rowcount`: psycopg says -1.
    return session.execute(statement).first() is not None
