"""Secrets in rows: sealed under the present key, or opened for a schema that knew no seals."""

import json

from sqlalchemy import Connection, String, column, select, table, update
from sqlalchemy import Uuid as UuidType
from sqlalchemy.sql.expression import ColumnClause, TableClause

from core.db import sealer_of
from core.sealing import MARK
from models.base import SEALED_MEMBER, JsonData

COLUMNS = (
    ("api_keys", "webhook_secret"),
    ("webhook_endpoints", "secret"),
    ("webhook_endpoints", "previous_secret"),
    ("jobs", "webhook_secret"),
    ("batches", "webhook_secret"),
    ("deliveries", "secret"),
)
_HEADERS = ("media", "source_headers")
"""Kept until the media is fetched: not sealed anew, but opened where it must be."""


def seal_rows(connection: Connection) -> None:
    """Seal what is in the clear or under an older key; nothing happens without a key."""
    sealer = sealer_of(connection.dialect)
    if sealer.mark is None:
        return
    for name, field in COLUMNS:
        rows, secret = _name(name, field)
        wanted = secret.is_not(None) & secret.not_like(f"{sealer.mark}%")
        for row in connection.execute(select(rows).where(wanted)).all():
            text = sealer.seal(sealer.unseal(row[1]))
            connection.execute(update(rows).where(rows.c.id == row[0]).values({field: text}))


def open_rows(connection: Connection) -> None:
    """Write every secret in the clear.

    Raises:
        SealBroken: One was sealed with a key that is not there.
    """
    sealer = sealer_of(connection.dialect)
    for name, field in COLUMNS:
        rows, secret = _name(name, field)
        for row in connection.execute(select(rows).where(secret.like(f"{MARK}%"))).all():
            text = sealer.unseal(row[1])
            connection.execute(update(rows).where(rows.c.id == row[0]).values({field: text}))
    name, field = _HEADERS
    rows = table(name, column("id", UuidType()), column(field, JsonData))
    for row in connection.execute(select(rows).where(rows.c[field].is_not(None))).all():
        if SEALED_MEMBER in row[1]:
            headers = json.loads(sealer.unseal(row[1][SEALED_MEMBER]))
            connection.execute(update(rows).where(rows.c.id == row[0]).values({field: headers}))


def _name(name: str, field: str) -> tuple[TableClause, ColumnClause[str]]:
    secret: ColumnClause[str] = column(field, String())
    return table(name, column("id", UuidType()), secret), secret
