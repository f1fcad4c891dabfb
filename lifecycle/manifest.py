"""One line of a batch's manifest: what it asks for, or why it cannot be used."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import InvalidInput, InvalidOption
from core.settings import Settings
from lifecycle.submissions import (
    Source,
    SourceKind,
    Submission,
    check_text,
    parse_submission,
    take_source,
)

MAX_LINE_BYTES = 1 << 20
"""A prompt may have 65,536 characters of four bytes, escaped to six each; nothing else is long."""

MAX_CUSTOM_ID_CHARS = 500
CUSTOM_ID = "custom_id"
DEFAULT_PRIORITY = "bulk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a usable line asks for."""

    source: Source
    submission: Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    """A line as far as it could be read: `request` or `error`.

    Attributes:
        custom_id: None if the line has none that can be used.
        raw: What the line of a `request` says, but for its name; see `parse_again`.
    """

    custom_id: str | None = None
    request: Request | None = None
    raw: dict[str, Any] | None = None
    error: InvalidInput | None = None


def parse_line(settings: Settings, data: bytes | None, defaults: Mapping[str, Any]) -> ParsedLine:
    """Read one line; never raises for what the line holds.

    Args:
        data: None for a line beyond `MAX_LINE_BYTES`.
        defaults: Options, by their names in the HTTP interface, for what the line leaves open.
    """
    custom_id = None
    try:
        raw = _read_object(data)
        custom_id = _take_custom_id(raw)
    except InvalidInput as exc:
        return ParsedLine(custom_id=custom_id, error=exc)
    return parse_again(settings, custom_id, raw, defaults)


def parse_again(
    settings: Settings, custom_id: str | None, raw: Mapping[str, Any], defaults: Mapping[str, Any]
) -> ParsedLine:
    """Read what a line says but for its name; never raises for what that is."""
    try:
        request = _read_request(settings, dict(raw), defaults)
    except InvalidInput as exc:
        return ParsedLine(custom_id=custom_id, error=exc)
    return ParsedLine(custom_id=custom_id, request=request, raw=dict(raw))


def parse_key(settings: Settings, key: str, defaults: Mapping[str, Any]) -> ParsedLine:
    """Return the line that a stored object is; its key names it."""
    custom_id = key if len(key) <= MAX_CUSTOM_ID_CHARS else None
    return parse_again(settings, custom_id, {SourceKind.MEDIA_KEY.value: key}, defaults)


def check_defaults(settings: Settings, defaults: Mapping[str, Any]) -> None:
    """Refuse defaults that would spoil every line.

    Raises:
        InvalidOption: One of them is unknown or has a value that cannot be used.
    """
    for name in (*SourceKind, CUSTOM_ID):
        if name in defaults:
            raise InvalidOption(f"{name}: belongs into a line", param=name)
    parse_submission(settings, defaults)


def _read_request(settings: Settings, raw: dict[str, Any], defaults: Mapping[str, Any]) -> Request:
    source = take_source(settings, raw)
    given = {name: value for name, value in raw.items() if value is not None}
    merged = {"priority": DEFAULT_PRIORITY, **defaults, **given}
    return Request(source=source, submission=parse_submission(settings, merged))


def _read_object(data: bytes | None) -> dict[str, Any]:
    if data is None:
        raise InvalidInput(f"The line is longer than {MAX_LINE_BYTES} bytes.")
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError) as exc:
        raise InvalidInput("The line is not valid JSON in UTF-8.") from exc
    if not isinstance(document, dict):
        raise InvalidInput("The line is not a JSON object.")
    return document


def _take_custom_id(raw: dict[str, Any]) -> str:
    custom_id = raw.pop(CUSTOM_ID, None)
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        raise InvalidOption(
            f"{CUSTOM_ID}: text of 1 to {MAX_CUSTOM_ID_CHARS} characters", param=CUSTOM_ID
        )
    check_text(custom_id, param=CUSTOM_ID)
    return custom_id
