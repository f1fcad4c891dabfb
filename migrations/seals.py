"""Secrets in rows: sealed under the present key, or opened for a schema that knew no seals."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnClause,
    Connection,
    Text,
    cast,
    column,
    literal,
    select,
    table,
    type_coerce,
    update,
)
from sqlalchemy import Uuid as UuidType
from sqlalchemy.types import TypeEngine

from core.db import sealer_of
from core.sealing import MARK
from models.base import SEALED_MEMBER, JsonData, Sealed, SealedJson

COLUMNS = (
    ("api_keys", "webhook_secret"),
    ("webhook_endpoints", "secret"),
    ("webhook_endpoints", "previous_secret"),
    ("jobs", "webhook_secret"),
    ("batches", "webhook_secret"),
    ("deliveries", "secret"),
)
_OBJECTS = (("media", "source_headers"), ("batches", "defaults"), ("batch_items", "line"))
OBJECT_HEAD = f'{{"{SEALED_MEMBER}": "'
"""What both databases write before the text of a sealed object."""


def seal_rows(connection: Connection) -> None:
    """Seal what is in the clear or under an older key; without a key there must be no seal.

    Raises:
        SealBroken: One was sealed with a key that is not there.
    """
    mark = sealer_of(connection.dialect).mark
    if mark is None:
        open_rows(connection)
        return
    for name, field in COLUMNS:
        _rewrite(connection, name, field, (Sealed(), Sealed()), unless=mark)
    for name, field in _OBJECTS:
        _rewrite(connection, name, field, (SealedJson(), SealedJson()), unless=OBJECT_HEAD + mark)


def open_rows(connection: Connection) -> None:
    """Write every secret in the clear.

    Raises:
        SealBroken: One was sealed with a key that is not there.
    """
    for name, field in COLUMNS:
        _rewrite(connection, name, field, (Sealed(), Text()), where=MARK)
    for name, field in _OBJECTS:
        _rewrite(connection, name, field, (SealedJson(), JsonData), where=OBJECT_HEAD + MARK)


def _rewrite(
    connection: Connection,
    name: str,
    field: str,
    types: tuple[TypeEngine[Any], TypeEngine[Any]],
    *,
    where: str = "",
    unless: str | None = None,
) -> None:
    """Read a column as one type and write it as another.

    Args:
        types: Of reading and of writing.
        where: What the stored texts begin with that are meant.
        unless: What those begin with that are not.
    """
    keys: list[ColumnClause[Any]] = [column("id", UuidType())]
    if name == "batch_items":
        keys = [column("batch_id", UuidType()), column("index", BigInteger())]
    rows = table(name, *keys, column(field))
    stored = cast(rows.c[field], Text)
    wanted = [stored.like(f"{where}%")]  # of NULL it is not true either
    if unless is not None:
        wanted.append(stored.not_like(f"{unless}%"))
    query = select(*keys, type_coerce(rows.c[field], types[0])).where(*wanted)
    for *found, value in connection.execute(query).all():
        here = [key == part for key, part in zip(keys, found, strict=True)]
        written = literal(value, types[1])
        connection.execute(update(rows).where(*here).values({field: written}))
