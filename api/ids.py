"""Ids in paths and cursors: what is no UUID names nothing."""

from uuid import UUID

from core.errors import InvalidOption, NotFound


def parse_id(text: str, what: str) -> UUID:
    """Return the id in a path.

    Raises:
        NotFound: `text` is no id, so there is no such thing.
    """
    try:
        return UUID(text)
    except ValueError as exc:
        raise NotFound(f"There is no {what} {text[:64]!r}.") from exc


def parse_cursor(text: str | None) -> UUID | None:
    """Return the id after which a list goes on.

    Raises:
        InvalidOption: It is none that a list gave out.
    """
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError as exc:
        raise InvalidOption("cursor: not one that this list gave", param="cursor") from exc
