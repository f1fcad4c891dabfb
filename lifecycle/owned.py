"""Rows that belong to a key: nobody else can see them, or learn that they exist."""

from typing import TypeVar
from uuid import UUID

from sqlalchemy.orm import Session

from core.errors import NotFound
from models import Batch
from models.delivery import Delivery
from models.upload import Upload
from models.webhook import WebhookEndpoint

Owned = TypeVar("Owned", Batch, Delivery, Upload, WebhookEndpoint)

_NAMES = {
    Batch: "batch",
    Delivery: "delivery",
    Upload: "upload",
    WebhookEndpoint: "webhook endpoint",
}


def get_owned(
    session: Session, kind: type[Owned], row_id: UUID, *, key_id: UUID, lock: bool = False
) -> Owned:
    """Return a row of the key, locked if it is to be changed. Jobs have `lifecycle.jobs.get_job`.

    Raises:
        NotFound: There is none, or it is another key's: callers cannot tell which.
    """
    row = session.get(kind, row_id, with_for_update=True if lock else None)
    if row is None or row.key_id != key_id:
        raise NotFound(f"There is no {_NAMES[kind]} {row_id}.")
    return row
