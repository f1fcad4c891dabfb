"""What the client hears, in OpenAI's words.

Source: openai 3.57.0, types/realtime/realtime_server_event.py, and types/beta/realtime for "beta".
"""

import json
from typing import Any

from core.ids import new_id
from core.live import Told


def dump_event(kind: str, **fields: Any) -> str:  # noqa: ANN401 - JSON of many shapes
    """Return one server event with an id of its own."""
    return json.dumps({"type": kind, "event_id": f"event_{new_id().hex}", **fields})


def dump_error(
    code: str,
    message: str,
    *,
    param: str | None = None,
    event_id: str | None = None,
    is_ours: bool = False,
) -> str:
    """Return an `error` event.

    Args:
        event_id: The client's name for the event that caused it.
        is_ours: Whether the server is to blame.
    """
    error = {
        "type": "server_error" if is_ours else "invalid_request_error",
        "code": code,
        "message": message,
        "param": param,
        "event_id": event_id,
    }
    return dump_event("error", error=error)


class Renderer:
    """Turns what a worker says into events; remembers which item came last.

    Attributes:
        is_beta: Whether the client speaks the older dialect.
    """

    def __init__(self, *, is_beta: bool) -> None:
        self.is_beta = is_beta
        self._last_item: str | None = None

    def render(self, message: dict[str, Any]) -> list[str]:
        """Return the events that tell of a worker's message; none for those inside the service."""
        item_id = message.get("item_id")
        match message["type"]:
            case Told.SPEECH_STARTED | Told.SPEECH_STOPPED as kind:
                name = "audio_start_ms" if kind == Told.SPEECH_STARTED else "audio_end_ms"
                at = {name: message[name]}
                return [dump_event(f"input_audio_buffer.{kind}", item_id=item_id, **at)]
            case Told.COMMITTED:
                return self._committed(str(item_id))
            case Told.CLEARED:
                return [dump_event("input_audio_buffer.cleared")]
            case Told.REFUSED:
                return [
                    dump_error(message["code"], message["message"], event_id=message["event_id"])
                ]
            case Told.DELTA | Told.COMPLETED | Told.FAILED as kind:
                return [self._transcription(kind, message)]
            case _:
                return []

    def _committed(self, item_id: str) -> list[str]:
        previous, self._last_item = self._last_item, item_id
        item = {
            "id": item_id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        kinds = ("created",) if self.is_beta else ("added", "done")
        return [
            dump_event("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous),
            *(
                dump_event(f"conversation.item.{kind}", item=item, previous_item_id=previous)
                for kind in kinds
            ),
        ]

    @staticmethod
    def _transcription(kind: str, message: dict[str, Any]) -> str:
        fields: dict[str, Any] = {"item_id": message["item_id"], "content_index": 0}
        match kind:
            case Told.DELTA:
                fields["delta"] = message["delta"]
            case Told.COMPLETED:
                fields["transcript"] = message["text"]
                fields["usage"] = {"type": "duration", "seconds": message["audio_ms"] / 1000}
            case _:
                fields["error"] = {
                    "type": "server_error",
                    "code": message["code"],
                    "message": message["message"],
                    "param": None,
                }
        if "logprobs" in message:
            fields["logprobs"] = message["logprobs"]
        return dump_event(f"conversation.item.input_audio_transcription.{kind}", **fields)
