"""API keys in the database: who a caller is, and how keys come and go."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.errors import InvalidOption, NotFound, Unauthenticated
from core.keys import NewKey, Scope, generate_key, hash_key
from models import LOCAL_KEY_ID, ApiKey

USED_RESOLUTION = timedelta(minutes=1)
"""`last_used_at` is no more precise than that, so that requests do not write a row each."""


def create_key(
    uow: UnitOfWork, *, name: str, scopes: Iterable[str], now: datetime
) -> tuple[ApiKey, NewKey]:
    """Add a key; the second value holds the secret, which cannot be had again.

    Raises:
        InvalidOption: A scope is unknown, or there is none; or the name is empty or too long.
    """
    wanted = list(dict.fromkeys(scopes))
    known = set(Scope)
    if not wanted or not known.issuperset(wanted):
        raise InvalidOption(f"scopes are one or more of {', '.join(Scope)}", param="scopes")
    if not name.strip() or len(name) > 200:
        raise InvalidOption("a name has 1 to 200 characters", param="name")
    new = generate_key()
    row = ApiKey(
        name=name.strip(),
        prefix=new.prefix,
        key_hash=new.key_hash,
        scopes=[str(scope) for scope in wanted],
        created_at=now,
    )
    uow.session.add(row)
    uow.session.flush()
    return row, new


def authenticate(session: Session, secret: str) -> ApiKey:
    """Return the key that `secret` is; only reads.

    Raises:
        Unauthenticated: There is no such key, or it was revoked.
    """
    row = session.scalars(
        select(ApiKey).where(ApiKey.key_hash == hash_key(secret), ApiKey.revoked_at.is_(None))
    ).one_or_none()
    if row is None:
        raise Unauthenticated("The API key is not known here, or was revoked.")
    return row


def is_use_stale(row: ApiKey, *, now: datetime) -> bool:
    """Whether `note_use` has something to write."""
    return row.last_used_at is None or now - row.last_used_at >= USED_RESOLUTION


def note_use(uow: UnitOfWork, key_id: UUID, *, now: datetime) -> None:
    """Set `last_used_at`; callers ask `is_use_stale` first."""
    uow.session.execute(
        update(ApiKey)
        .where(ApiKey.id == key_id)
        .values(last_used_at=now)
        .execution_options(synchronize_session=False)
    )


def list_keys(session: Session) -> Sequence[ApiKey]:
    """Return every key but the local owner, oldest first, revoked ones included."""
    return session.scalars(
        select(ApiKey).where(ApiKey.id != LOCAL_KEY_ID).order_by(ApiKey.created_at, ApiKey.id)
    ).all()


def revoke_key(uow: UnitOfWork, key_id: UUID, *, now: datetime) -> ApiKey:
    """End a key's life; its jobs stay. Revoking twice is harmless.

    Raises:
        NotFound: There is no such key, or it is the local owner.
    """
    row = None if key_id == LOCAL_KEY_ID else uow.session.get(ApiKey, key_id)
    if row is None:
        raise NotFound(f"There is no API key {key_id}.")
    row.revoked_at = row.revoked_at or now
    return row
