"""Alembic's environment: the connection comes from `migrations.run`, or the URL from Settings."""

from typing import Any

from alembic import context
from sqlalchemy import Connection

import models  # noqa: F401 - fills the metadata
from core.db import make_engine, schema_transaction
from core.settings import Settings
from models.base import Base, Instant, JsonData, Sealed, SealedJson


def render_item(kind: str, item: Any, autogen_context: Any) -> str | bool:
    """Write our column types by name."""
    if kind == "type" and isinstance(item, Instant | Sealed | SealedJson):
        name = type(item).__name__
        autogen_context.imports.add(f"from models.base import {name}")
        return f"{name}()"
    if kind == "type" and type(item) is type(JsonData) and item.none_as_null:
        autogen_context.imports.add("from models.base import JsonData")
        return "JsonData"
    return False


def compare_type(
    _context: Any, _inspected: Any, _metadata: Any, _found: Any, wanted: Any
) -> bool | None:
    """Leave ours to the databases: SQLite has one type for all JSON, and Instant decorates one."""
    return False if isinstance(wanted, Instant | Sealed | SealedJson | type(JsonData)) else None


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,  # SQLite cannot alter tables in place
        render_item=render_item,
        compare_type=compare_type,
    )
    if connection.dialect.name == "postgresql":
        # A migration that waits for a lock blocks everyone who comes after it: rather fail.
        connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
    context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    settings = Settings()
    engine = make_engine(settings.database, sealer=settings.sealer)
    with schema_transaction(engine) as own:
        run(own)
    engine.dispose()
