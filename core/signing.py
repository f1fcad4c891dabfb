"""Standard Webhooks: secrets and signatures.

Source: https://github.com/standard-webhooks/standard-webhooks, spec 1.0.0.
"""

import base64
import binascii
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook

from core import errors

PREFIX = "whsec_"
SECRET_BYTES = range(24, 65)
"""How long a secret may be, by the specification."""


def new_secret() -> str:
    """Return a fresh secret of 256 random bits."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(secret: str, *, param: str) -> str:
    """Return `secret` if it is well-formed.

    Raises:
        InvalidOption: It is not `whsec_` and 24 to 64 bytes in base64.
    """
    try:
        raw = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise errors.InvalidOption(f"{param}: not base64 after {PREFIX}", param=param) from exc
    if not secret.startswith(PREFIX) or len(raw) not in SECRET_BYTES:
        raise errors.InvalidOption(
            f"{param}: must be {PREFIX} and 24 to 64 bytes in base64", param=param
        )
    return secret


def signed_headers(
    secrets_: Sequence[str], *, event_id: str, body: bytes, at: datetime
) -> dict[str, str]:
    """Return the headers of one attempt: a signature for each secret, newest first.

    Args:
        body: UTF-8, sent exactly as given.
        at: Aware; the library signs the wrong second for any zone but UTC.
    """
    at = at.astimezone(UTC)
    text = body.decode()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(s).sign(event_id, at, text) for s in secrets_),
    }
