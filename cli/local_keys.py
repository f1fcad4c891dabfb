"""The keys a data directory starts with: one for its own `transcribe`, one for people."""

import os
import platform
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from core.db import UnitOfWork, make_engine, make_sessions, unit_of_work
from core.errors import Unauthenticated
from core.keys import Scope, hash_key
from core.settings import Settings
from lifecycle.keys import authenticate, create_key, list_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Secrets of the keys.

    Attributes:
        local: Kept in a file that this user alone can read, beside the database that it opens:
            whoever can read the one can read the other.
        first: Just made because nobody has a key yet, to be shown once; else None.
    """

    local: str
    first: str | None


def ensure_keys(settings: Settings, *, is_first_wanted: bool) -> Keys:
    """Return the local key, making it where it is missing or revoked, and perhaps a first one."""
    path = local_key_file(settings.data_path)
    engine = make_engine(settings.database, sealer=settings.sealer)
    try:
        with unit_of_work(make_sessions(engine)) as uow:
            local = _find_local(uow, path) or _create(
                uow, f"local, {platform.node()}:{settings.data_path}", (Scope.SUBMIT, Scope.READ)
            )
            first = None
            if is_first_wanted and not _has_other_key(uow, local):
                first = _create(uow, "first", (Scope.SUBMIT, Scope.READ, Scope.ADMIN))
    finally:
        engine.dispose()
    _write_private(path, local)
    return Keys(local=local, first=first)


def ensure_seal(settings: Settings) -> None:
    """Make the key that seals secrets in the embedded database, unless there is one.

    It lies beside the database: what it protects are copies of the database alone.
    """
    is_embedded = settings.database_url is None and settings.seal_keys is None
    if is_embedded and not settings.seal_file.exists():
        _write_private(settings.seal_file, secrets.token_urlsafe(32))


def local_key_file(data_path: Path) -> Path:
    """Return where the local key lies."""
    return data_path / "local.key"


def find_local_key(data_path: Path) -> str | None:
    """Return the local key of a data directory, or None if there is none to read."""
    try:
        return local_key_file(data_path).read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _find_local(uow: UnitOfWork, path: Path) -> str | None:
    secret = find_local_key(path.parent)
    if secret is None:
        return None
    try:
        authenticate(uow.session, secret)
    except Unauthenticated:
        return None
    return secret


def _create(uow: UnitOfWork, name: str, scopes: tuple[Scope, ...]) -> str:
    _, new = create_key(uow, name=name[:200], scopes=scopes, now=datetime.now(UTC))
    return new.secret


def _has_other_key(uow: UnitOfWork, local: str) -> bool:
    keys = list_keys(uow.session)
    return any(key.revoked_at is None and key.key_hash != hash_key(local) for key in keys)


def _write_private(path: Path, secret: str) -> None:
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secret + "\n")
    temporary.replace(path)
