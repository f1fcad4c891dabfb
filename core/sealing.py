"""Data in the database that is unreadable without a secret that is not in it."""

import base64
from collections.abc import Sequence
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from core.errors import SealBroken

_ANSWER, _COLUMN = b"scriptorium sealed answer", b"scriptorium sealed column"

MARK = "sealed:"
MIN_KEY_CHARS = 32


def seal(data: bytes, *, secret: str) -> bytes:
    """Return `data` encrypted and authenticated under a key derived from `secret`.

    Args:
        secret: Of many random bits: nothing here slows down guessing.
    """
    return _box(secret, _ANSWER).encrypt(data)


def unseal(sealed: bytes, *, secret: str) -> bytes:
    """Return what was sealed.

    Raises:
        SealBroken: `secret` is not the one it was sealed with, or it was changed.
    """
    try:
        return _box(secret, _ANSWER).decrypt(sealed)
    except InvalidToken as exc:
        raise SealBroken("sealed with another secret, or changed since") from exc


class Sealer:
    """Seals what the service itself must read again, under keys of the deployment.

    Without a key it seals nothing, and it reads what was never sealed: rows are older than keys.
    A sealed text names its key, so that those of an older one are found without opening any.

    Attributes:
        mark: What texts begin with that the present key has sealed; None if there is no key.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        """Take the keys: the first one seals, every one opens."""
        self._boxes = {_mark(key): _box(key, _COLUMN) for key in keys}
        self.mark = next(iter(self._boxes), None)

    def seal(self, text: str) -> str:
        """Return `text` sealed, or as it is where there is no key."""
        if self.mark is None:
            return text
        return self.mark + self._boxes[self.mark].encrypt(text.encode()).decode("ascii")

    def unseal(self, stored: str) -> str:
        """Return the text.

        Raises:
            SealBroken: Its key is not among ours, or it was changed.
        """
        if not stored.startswith(MARK):
            return stored
        head, _, token = stored.removeprefix(MARK).partition(":")
        box = self._boxes.get(f"{MARK}{head}:")
        if box is None:
            raise SealBroken(
                "a secret in the database was sealed with a key that is neither among "
                "SCRIPTORIUM_SEAL_KEYS nor in seal.key"
            )
        try:
            return box.decrypt(token.encode()).decode()
        except InvalidToken as exc:
            raise SealBroken("a sealed text was changed") from exc


def _mark(key: str) -> str:
    return f"{MARK}{sha256(_COLUMN + key.encode()).hexdigest()[:8]}:"


def _box(secret: str, purpose: bytes) -> Fernet:
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose)
    key = derive.derive(secret.encode("utf-8", "surrogatepass"))
    return Fernet(base64.urlsafe_b64encode(key))
