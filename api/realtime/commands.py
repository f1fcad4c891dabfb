"""What a client may say, read from its messages."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from core.errors import InvalidInput, InvalidOption
from lifecycle.submissions import check_text

MAX_ID_CHARS = 512

UPDATE = "session.update"
BETA_UPDATE = "transcription_session.update"
APPEND = "input_audio_buffer.append"
COMMIT = "input_audio_buffer.commit"
CLEAR = "input_audio_buffer.clear"

_FIELDS = {UPDATE: "session", BETA_UPDATE: "session", APPEND: "audio", COMMIT: None, CLEAR: None}


class InvalidEvent(InvalidInput):
    """A client event that cannot be followed.

    Attributes:
        event_id: The client's name for it, if it could be read.
        param: The field that is wrong, if it is one.
    """

    code = "invalid_event"
    title = "The event cannot be followed"

    def __init__(
        self, message: str, *, event_id: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.event_id = event_id
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A client event.

    Attributes:
        value: Its one field: `session` as it came, or the decoded `audio`.
    """

    kind: str
    event_id: str | None
    value: Any = None


def parse_command(text: str | None) -> Command:
    """Return what a message asks for.

    Args:
        text: None for a binary message.

    Raises:
        InvalidEvent: It is no event that this service knows, or a field is missing or wrong.
    """
    event = _load(text)
    event_id = _read_id(event)
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        known = ", ".join(_FIELDS)
        raise InvalidEvent(
            f"type: {str(kind)[:64]!r} is not one of {known}", event_id=event_id, param="type"
        )
    name = _FIELDS[kind]
    for other in event:
        if other not in ("type", "event_id", name):
            raise InvalidEvent(
                f"{other[:64]}: unknown or unsupported parameter",
                event_id=event_id,
                param=other[:64],
            )
    if name is not None and name not in event:
        raise InvalidEvent(f"{name}: is missing", event_id=event_id, param=name)
    value = event.get(name) if name is not None else None
    if kind == APPEND:
        value = _decode(value, event_id)
    return Command(kind=kind, event_id=event_id, value=value)


def _load(text: str | None) -> dict[str, Any]:
    if text is None:
        raise InvalidEvent("Events are JSON in text messages; audio goes into them as base64.")
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidEvent("The message is not JSON.") from exc
    if not isinstance(event, dict):
        raise InvalidEvent("The message is not a JSON object.")
    return event


def _read_id(event: dict[str, Any]) -> str | None:
    event_id = event.get("event_id")
    if event_id is None:
        return None
    if not isinstance(event_id, str) or len(event_id) > MAX_ID_CHARS:
        raise InvalidEvent(
            f"event_id: a text of at most {MAX_ID_CHARS} characters", param="event_id"
        )
    try:
        check_text(event_id, param="event_id")
    except InvalidOption as exc:
        raise InvalidEvent(str(exc), param="event_id") from exc
    return event_id


def _decode(audio: object, event_id: str | None) -> bytes:
    try:
        if not isinstance(audio, str):
            raise TypeError
        data = base64.b64decode(audio, validate=True)
    except (TypeError, ValueError, binascii.Error) as exc:
        raise InvalidEvent("audio: is not base64", event_id=event_id, param="audio") from exc
    return data
