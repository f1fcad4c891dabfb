"""`Idempotency-Key` at the door: read from the request, answered again from the database."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, FastAPI, Header, Request, Response
from pydantic import BaseModel

from api.deps import Caller, Submitter, now
from core.db import UnitOfWork
from core.errors import InvalidOption
from lifecycle.idempotency import AlreadyAnswered, Once, claim_once, fingerprint_of, keep_answer

HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotent-Replayed"
MAX_CHARS = 255

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias=HEADER,
        max_length=MAX_CHARS,
        description="Repeating a request under the same key creates nothing new.",
    ),
]

View = TypeVar("View", bound=BaseModel)


def parse_once(
    request: Request, caller: Caller, key: str | None, content: Mapping[str, Any]
) -> Once | None:
    """Return what makes this request unique, or None if it carries no key.

    Args:
        content: The request by meaning; a file is represented by its hash.

    Raises:
        InvalidOption: The key is empty or has characters that no header should have.
    """
    if key is None:
        return None
    check_key(key)
    operation = f"{request.method} {request.scope['route'].path}"
    return Once(
        key_id=caller.key_id,
        idempotency_key=key,
        fingerprint=fingerprint_of(operation, content),
        caller_secret=caller.secret,
    )


def check_key(key: str | None) -> None:
    """Refuse an unusable key; `parse_once` does too, but only when all of the body is there.

    Raises:
        InvalidOption: The key is empty or has characters that no header should have.
    """
    if key is not None and (not key.strip() or len(key) > MAX_CHARS or not key.isprintable()):
        raise InvalidOption(
            f"{HEADER}: 1 to {MAX_CHARS} printable characters", param=HEADER.lower()
        )


def _once_for(
    request: Request, caller: Submitter, idempotency_key: IdempotencyKey = None
) -> Callable[[Mapping[str, Any]], Once | None]:
    return partial(parse_once, request, caller, idempotency_key)


OnceFor = Annotated[Callable[[Mapping[str, Any]], Once | None], Depends(_once_for)]
"""`parse_once` for this request of a submitter, whose content is still to be given."""


def create_once(
    uow: UnitOfWork,
    once: Once | None,
    make: Callable[[], tuple[UUID, View]],
    *,
    status: int,
    location: Callable[[UUID], str] | None = None,
) -> View:
    """Carry out `make` unless it was; both in the caller's transaction.

    Raises:
        AlreadyAnswered: It was carried out before; `install` turns this into the earlier answer.
        IdempotencyMismatch: The key came with another request.
    """
    claim_once(uow, once, now=now())
    subject_id, view = make()
    keep_answer(
        uow,
        once,
        status=status,
        body=view.model_dump_json().encode(),
        location=None if location is None else location(subject_id),
        subject_id=subject_id,
    )
    return view


def install(app: FastAPI) -> None:
    """Answer repetitions with what was answered first."""
    app.add_exception_handler(AlreadyAnswered, _answer_again)


async def _answer_again(_request: Request, exc: Exception) -> Response:
    if not isinstance(exc, AlreadyAnswered):
        raise exc
    headers = {REPLAYED_HEADER: "true"}
    if exc.location is not None:
        headers["Location"] = exc.location
    return Response(
        exc.body, status_code=exc.status, headers=headers, media_type="application/json"
    )
