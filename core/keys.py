"""API keys: how they are made, hashed and recognised. Only the hash is ever stored."""

import hashlib
import secrets
from dataclasses import dataclass
from enum import StrEnum

KEY_START = "sk-"
SECRET_BYTES = 32
PREFIX_CHARS = 11
"""`sk-` and eight characters: enough to recognise a key in a list, far too few to guess it."""


class Scope(StrEnum):
    """What a key may do; `admin` implies the others."""

    SUBMIT = "submit"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key just made.

    Attributes:
        secret: The whole key, to be shown once and never stored.
        prefix: Its first characters, to recognise it.
        key_hash: What `models.ApiKey.key_hash` keeps.
    """

    secret: str
    prefix: str
    key_hash: str


def generate_key() -> NewKey:
    """Return a key with 256 random bits."""
    secret = KEY_START + secrets.token_urlsafe(SECRET_BYTES)
    return NewKey(secret=secret, prefix=secret[:PREFIX_CHARS], key_hash=hash_key(secret))


def hash_key(secret: str) -> str:
    """Return the hex SHA-256 of a key.

    No salt and no slow hash: there is no dictionary of 256-bit random strings. Looking the hash
    up by equality also leaves nothing to time.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
