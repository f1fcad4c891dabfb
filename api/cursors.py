"""Values in query strings: opaque cursors, ids and instants."""

import base64
import binascii
import json
from datetime import UTC, datetime
from uuid import UUID

from core.errors import InvalidOption


def encode_cursor(created_at: datetime, row_id: UUID) -> str:
    """Return where a page ended; callers pass it back and read nothing into it."""
    place = json.dumps([created_at.isoformat(), str(row_id)])
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[datetime, UUID]:
    """Undo `encode_cursor`.

    Raises:
        InvalidOption: It is none of ours.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        created_at, row_id = json.loads(raw)
        place = datetime.fromisoformat(created_at), UUID(row_id)
    except (binascii.Error, ValueError, TypeError, AttributeError) as exc:
        raise InvalidOption("cursor: not one that this list gave", param="cursor") from exc
    return as_utc(place[0], param="cursor"), place[1]


def parse_id(text: str, *, param: str) -> UUID:
    """Return an id.

    Raises:
        InvalidOption: It is no UUID.
    """
    try:
        return UUID(text)
    except ValueError as exc:
        raise InvalidOption(f"{param}: not an id", param=param) from exc


def as_utc(instant: datetime, *, param: str) -> datetime:
    """Return an aware instant; one without a zone counts as UTC.

    Raises:
        InvalidOption: It lies outside what can be told in UTC.
    """
    try:
        if instant.tzinfo is None:
            return instant.replace(tzinfo=UTC)
        return instant.astimezone(UTC)
    except OverflowError as exc:
        raise InvalidOption(f"{param}: out of range", param=param) from exc
