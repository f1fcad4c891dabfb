"""`srt`: SubRip cues, numbered from 1, times with a comma."""

import re

from core.formats.base import Format
from core.formats.cues import CueStyle, plan_cues
from core.formats.times import format_clock
from core.transcript import Transcript

_ARROW = re.compile(r"-{2,}>")


def render(transcript: Transcript) -> str:
    """Return the subtitles in the default style."""
    return render_srt(transcript, CueStyle())


def render_srt(transcript: Transcript, style: CueStyle) -> str:
    """Return the subtitles; an empty file if there are none.

    SubRip has no escapes, so an arrow in a text loses a dash, as in openai/whisper's writer.
    """
    blocks = []
    cues = plan_cues(transcript.segments, style, until_ms=transcript.duration_ms)
    for number, cue in enumerate(cues, start=1):
        start = format_clock(cue.start_ms, decimal_mark=",")
        end = format_clock(cue.end_ms, decimal_mark=",")
        text = _ARROW.sub("->", "\n".join(cue.lines))
        blocks.append(f"{number}\n{start} --> {end}\n{text}\n")
    return "\n".join(blocks)


SRT = Format(
    name="srt", media_type="application/x-subrip; charset=utf-8", extension=".srt", render=render
)
