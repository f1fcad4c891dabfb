"""Data kept for one caller, unreadable without the secret that only the caller has."""

import base64

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_PURPOSE = b"scriptorium sealed answer"


class SealBroken(Exception):
    """The data was sealed with another secret, or changed since."""


def seal(data: bytes, *, secret: str) -> bytes:
    """Return `data` encrypted and authenticated under a key derived from `secret`.

    Args:
        secret: Of many random bits: nothing here slows down guessing.
    """
    return _box(secret).encrypt(data)


def unseal(sealed: bytes, *, secret: str) -> bytes:
    """Return what was sealed.

    Raises:
        SealBroken: `secret` is not the one it was sealed with, or it was changed.
    """
    try:
        return _box(secret).decrypt(sealed)
    except InvalidToken as exc:
        raise SealBroken from exc


def _box(secret: str) -> Fernet:
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE)
    key = derive.derive(secret.encode("utf-8", "surrogatepass"))
    return Fernet(base64.urlsafe_b64encode(key))
