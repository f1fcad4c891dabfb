"""What a live session says, put into the order in which it was spoken."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FAREWELL = "farewell"
"""Our name for the commit after the last audio."""

_TRANSCRIPTION = "conversation.item.input_audio_transcription."


@dataclass(slots=True)
class _Turn:
    """A turn's text as far as it is known; `shown` of its characters are printed."""

    text: str = ""
    shown: int = 0
    is_stopped: bool = False
    is_done: bool = False


class Script:
    """Prints turns one after the other, a line each; later ones wait for those before.

    Attributes:
        failures: Messages of turns without a transcript, and of the session's end.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self.failures: list[str] = []
        self._write = write
        self._turns: dict[str, _Turn] = {}  # those not printed to their end, in order
        self._is_over = False

    @property
    def is_complete(self) -> bool:
        """Whether the farewell was answered and all text is there."""
        return self._is_over and not self._turns

    def follow(self, event: dict[str, Any]) -> None:
        """Take the next event of the server."""
        kind = event["type"]
        if kind == "error":
            self._follow_error(event["error"])
        elif "item_id" in event:
            turn = self._turns.setdefault(event["item_id"], _Turn())
            self._follow_turn(turn, kind, event)
            self._print()

    def _follow_error(self, error: dict[str, Any]) -> None:
        if error["event_id"] == FAREWELL and error["code"].endswith("commit_empty"):
            self._is_over = True  # nobody was speaking: all turns have ended
        else:
            self.failures.append(error["message"])

    def _follow_turn(self, turn: _Turn, kind: str, event: dict[str, Any]) -> None:
        match kind.removeprefix(_TRANSCRIPTION):
            case "input_audio_buffer.speech_stopped":
                turn.is_stopped = True
            case "input_audio_buffer.committed" if not turn.is_stopped:
                self._is_over = True  # no pause ended this turn, so the farewell did
            case "delta":
                turn.text += event["delta"]
            case "completed":
                turn.text, turn.is_done = event["transcript"], True
            case "failed":
                turn.is_done = True
                self.failures.append(event["error"]["message"])
            case _:
                pass

    def _print(self) -> None:
        while self._turns:
            name, turn = next(iter(self._turns.items()))
            if new := turn.text[turn.shown :]:
                self._write(new if turn.shown else new.lstrip())
                turn.shown = len(turn.text)
            if not turn.is_done:
                return
            if turn.text.strip():
                self._write("\n")
            del self._turns[name]
