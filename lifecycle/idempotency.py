"""One creation a key and `Idempotency-Key`, however often and however parallel it is asked for.

An answer may hold what is shown but once (an API key, a webhook's secret, the URLs of an upload),
so it is kept sealed with what only the caller has: the API key and the `Idempotency-Key`, of both
of which the database knows hashes alone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.errors import IdempotencyMismatch
from core.sealing import seal, unseal
from lifecycle.conflict import insert_or_ignore
from models.idempotency import IdempotentAnswer

KEPT_FOR = timedelta(days=7)
"""Longer than any client goes on retrying; an archive run that was interrupted over a weekend
still finds its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A request that must create no more than once.

    Attributes:
        idempotency_key: As sent.
        fingerprint: See `fingerprint_of`.
        caller_secret: The caller's API key; "" where keys are off.
    """

    key_id: UUID
    idempotency_key: str
    fingerprint: str
    caller_secret: str = field(default="", repr=False)

    @property
    def stored_key(self) -> str:
        """What the row is found by."""
        return hashlib.sha256(self.idempotency_key.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def seal_secret(self) -> str:
        """What the answer is sealed with."""
        return f"{self.caller_secret}\n{self.idempotency_key}"


class AlreadyAnswered(Exception):
    """The request was carried out before; nothing of this repetition may be kept."""

    def __init__(self, *, status: int, body: bytes, location: str | None, subject_id: UUID) -> None:
        super().__init__("answered before")
        self.status = status
        self.body = body
        self.location = location
        self.subject_id = subject_id


def fingerprint_of(operation: str, content: Mapping[str, Any]) -> str:
    """Return what identifies a request by meaning: the same fields give the same value.

    Args:
        operation: Route and method; the same key on another route is another request.
        content: Fields as sent; of a file its hash, not its bytes.
    """
    canonical = json.dumps([operation, content], sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def claim_once(uow: UnitOfWork, once: Once | None, *, now: datetime) -> None:
    """Reserve the key in this transaction; nothing happens without one.

    A request of the same key that runs at the same time waits here for the first to end.

    Raises:
        AlreadyAnswered: It was carried out before.
        IdempotencyMismatch: The key came with another request.
    """
    if once is None:
        return
    reserved = insert_or_ignore(
        uow.session,
        IdempotentAnswer,
        {
            "key_id": once.key_id,
            "idempotency_key": once.stored_key,
            "fingerprint": once.fingerprint,
            "status": 0,
            "body": b"",
            "created_at": now,
        },
    )
    if reserved:
        return
    earlier = uow.session.get_one(
        IdempotentAnswer, (once.key_id, once.stored_key), populate_existing=True
    )
    if earlier.fingerprint != once.fingerprint:
        raise IdempotencyMismatch(
            f"Idempotency-Key {once.idempotency_key[:64]!r} was used with another request."
        )
    if earlier.subject_id is None:
        raise ValueError("an answer is stored in the transaction that reserves its key")
    raise AlreadyAnswered(
        status=earlier.status,
        body=unseal(earlier.body, secret=once.seal_secret),
        location=earlier.location,
        subject_id=earlier.subject_id,
    )


def keep_answer(
    uow: UnitOfWork,
    once: Once | None,
    *,
    status: int,
    body: bytes,
    location: str | None,
    subject_id: UUID,
) -> None:
    """Store the answer in the transaction that reserved the key."""
    if once is None:
        return
    uow.session.execute(
        update(IdempotentAnswer)
        .where(
            IdempotentAnswer.key_id == once.key_id,
            IdempotentAnswer.idempotency_key == once.stored_key,
        )
        .values(
            status=status,
            body=seal(body, secret=once.seal_secret),
            location=location,
            subject_id=subject_id,
        )
        .execution_options(synchronize_session=False)
    )


def forget_answers(session: Session, subject_ids: list[UUID]) -> None:
    """Remove the answers about deleted things: they hold what must not outlive them."""
    session.execute(
        delete(IdempotentAnswer)
        .where(IdempotentAnswer.subject_id.in_(subject_ids))
        .execution_options(synchronize_session=False)
    )


def expire_answers(session: Session, *, now: datetime) -> None:
    """Remove answers that nobody will ask for again."""
    session.execute(
        delete(IdempotentAnswer)
        .where(IdempotentAnswer.created_at < now - KEPT_FOR)
        .execution_options(synchronize_session=False)
    )
