"""`vtt`: WebVTT cues (https://www.w3.org/TR/webvtt1/), times with a point, text escaped."""

from core.formats.base import Format
from core.formats.cues import CueStyle, plan_cues
from core.formats.times import format_clock
from core.transcript import Transcript

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render(transcript: Transcript) -> str:
    """Return the subtitles in the default style."""
    return render_vtt(transcript, CueStyle())


def render_vtt(transcript: Transcript, style: CueStyle) -> str:
    """Return the subtitles; the bare header if there are none."""
    blocks = ["WEBVTT\n"]
    for cue in plan_cues(transcript.segments, style, until_ms=transcript.duration_ms):
        start = format_clock(cue.start_ms, decimal_mark=".")
        end = format_clock(cue.end_ms, decimal_mark=".")
        text = "\n".join(cue.lines).translate(_ESCAPES)
        blocks.append(f"{start} --> {end}\n{text}\n")
    return "\n".join(blocks)


VTT = Format(name="vtt", media_type="text/vtt; charset=utf-8", extension=".vtt", render=render)
