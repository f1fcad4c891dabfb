"""`tsv`: start, end (whole milliseconds) and text of every segment, as openai/whisper writes it."""

from core.formats.base import Format
from core.formats.cues import one_line
from core.transcript import Transcript


def render(transcript: Transcript) -> str:
    """Return a header line and one line a segment; tabs and line ends in a text become spaces."""
    lines = ["start\tend\ttext"]
    lines += [
        f"{segment.start_ms}\t{segment.end_ms}\t{one_line(segment.text)}"
        for segment in transcript.segments
    ]
    return "\n".join(lines) + "\n"


TSV = Format(
    name="tsv",
    media_type="text/tab-separated-values; charset=utf-8",
    extension=".tsv",
    render=render,
)
