"""The way out where a key of seals is lost: what no key opens is given up, the rest goes on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Text, cast, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from core.db import sealer_of
from core.errors import SealBroken
from core.sealing import MARK, Sealer
from core.signing import new_secret
from migrations.seals import OBJECT_HEAD
from models import (
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
from models.base import SEALED_MEMBER

FORGOTTEN_CODE = "secrets_forgotten"
_WHY = "Its options were sealed with a key that is lost; send it again."


_UNNEEDED: tuple[tuple[InstrumentedAttribute[Any], dict[str, Any], str, str], ...] = (
    (
        WebhookEndpoint.previous_secret,
        {"previous_secret_expires_at": None},
        "secrets that webhook endpoints had before",
        "they sign no more",
    ),
    (
        ApiKey.webhook_secret,
        {},
        "secrets of keys for webhooks",
        "POST /v1/webhooks/signing-secret shows a new one",
    ),
    (Job.webhook_secret, {}, "webhook secrets of jobs", "their key's signs"),
    (Batch.webhook_secret, {}, "webhook secrets of batches", "their key's signs"),
    (Delivery.secret, {}, "secrets of deliveries", "their key's signs"),
    (
        Media.source_headers,
        {},
        "sets of media_headers",
        "what was not fetched yet is asked for without them",
    ),
)
"""Columns that may be empty, what else has to be then, and what to say of it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """How many values of one kind were given up, and what that means."""

    count: int
    what: str
    meaning: str


def forget_secrets(connection: Connection, *, now: datetime) -> list[Loss]:
    """Give up every sealed value that none of the present keys opens; others stay as they are.

    Only on the newest schema, while nothing else runs. What cannot be missed is replaced, and
    what cannot go on rightly without it fails by name: a line that lost its options must not be
    transcribed with others.

    Returns:
        What was given up; nothing for kinds of which all open.
    """
    losses = [
        Loss(
            _replace_endpoint_secrets(connection),
            "secrets of webhook endpoints",
            "replaced; POST /v1/webhooks/{id}/rotate shows a new one",
        ),
        *(
            Loss(_clear(connection, column, also), what, meaning)
            for column, also, what, meaning in _UNNEEDED
        ),
        Loss(_forget_lines(connection), "lines of batches", "they cannot be retried"),
        Loss(
            _forget_defaults(connection, now),
            "options of batches",
            "their lines cannot be retried; those with lines still to read have failed",
        ),
    ]
    return [loss for loss in losses if loss.count]


def _replace_endpoint_secrets(connection: Connection) -> int:
    """Sign with secrets nobody knows: receivers refuse, so events wait, and none is lost."""
    broken = _find_broken(connection, WebhookEndpoint.secret)
    for key in broken:
        _set(connection, WebhookEndpoint, key, secret=new_secret())
    return len(broken)


def _clear(
    connection: Connection, column: InstrumentedAttribute[Any], also: Mapping[str, Any]
) -> int:
    broken = _find_broken(connection, column)
    for key in broken:
        _set(connection, column.class_, key, **{column.key: None, **also})
    return len(broken)


def _forget_defaults(connection: Connection, now: datetime) -> int:
    broken = _find_broken(connection, Batch.defaults)
    for key in broken:
        _set(connection, Batch, key, defaults={})
        connection.execute(
            update(Batch)
            .where(
                Batch.id == key["id"],
                Batch.status.in_((BatchStatus.QUEUED, BatchStatus.RUNNING)),
                or_(Batch.num_lines.is_(None), Batch.num_lines != Batch.next_index),
            )
            .values(
                status=BatchStatus.FAILED,
                error_code=FORGOTTEN_CODE,
                error_message=_WHY,
                lease_expires_at=None,
                finished_at=now,
            )
        )
        lines = select(BatchItem.index).where(
            BatchItem.batch_id == key["id"], cast(BatchItem.line, Text).is_not(None)
        )
        for index in connection.scalars(lines).all():
            _forget_line(connection, {"batch_id": key["id"], "index": index})
    return len(broken)


def _forget_lines(connection: Connection) -> int:
    broken = _find_broken(connection, BatchItem.line)
    for key in broken:
        _forget_line(connection, key)
    return len(broken)


def _forget_line(connection: Connection, key: Mapping[str, Any]) -> None:
    """Without its line an item is never retried; one that waits for that has failed."""
    is_open = BatchItem.status == ItemStatus.OPEN
    failed = {"status": ItemStatus.FAILED, "error_code": FORGOTTEN_CODE, "error_message": _WHY}
    connection.execute(update(BatchItem).where(*_is_row(BatchItem, key), is_open).values(failed))
    _set(connection, BatchItem, key, line=None)


def _set(connection: Connection, model: Any, key: Mapping[str, Any], **values: object) -> None:
    connection.execute(update(model).where(*_is_row(model, key)).values(values))


def _is_row(model: Any, key: Mapping[str, Any]) -> list[Any]:
    return [getattr(model, name) == value for name, value in key.items()]


def _find_broken(
    connection: Connection, column: InstrumentedAttribute[Any]
) -> Sequence[Mapping[str, Any]]:
    """Return the primary keys of rows whose value no key opens."""
    keys = column.class_.__table__.primary_key.columns
    stored = cast(column, Text)
    is_sealed = or_(stored.like(f"{MARK}%"), stored.like(f"{OBJECT_HEAD}{MARK}%"))
    sealer = sealer_of(connection.dialect)
    found = connection.execute(select(*keys, stored.label("stored")).where(is_sealed)).mappings()
    return [
        {key.name: row[key.name] for key in keys}
        for row in found.all()
        if not _opens(sealer, row["stored"])
    ]


def _opens(sealer: Sealer, stored: str) -> bool:
    try:
        sealer.unseal(stored if stored.startswith(MARK) else json.loads(stored)[SEALED_MEMBER])
    except SealBroken:
        return False
    return True
