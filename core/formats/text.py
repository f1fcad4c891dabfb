"""`text`: the words alone in one line; nothing at all if nobody speaks."""

from core.formats.base import Format
from core.transcript import Transcript


def render(transcript: Transcript) -> str:
    """Return the text and a line end."""
    return f"{transcript.text}\n" if transcript.text else ""


TEXT = Format(name="text", media_type="text/plain; charset=utf-8", extension=".txt", render=render)
