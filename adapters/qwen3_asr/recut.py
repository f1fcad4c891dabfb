"""Windows whose answer went astray are read again in two parts. No torch.

A model that says a passage again loses the audio under it, and one that reaches the token cap loses
the rest. Shorter audio is what it hears best, so the window is cut at its quietest spot.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adapters.base import Window
from core.logprobs import graft_logprobs, join_logprobs
from core.transcript import SAMPLE_RATE_HZ, Hypothesis, join_texts

MIN_PART_S = 3
_FRAME = SAMPLE_RATE_HZ // 50


def halve(window: Window, *, language: str | None) -> tuple[Window, Window] | None:
    """Return the window in two parts, or None if they would be too short.

    Args:
        language: Of the parts, None to detect it.
    """
    samples = window.samples
    if len(samples) < 2 * MIN_PART_S * SAMPLE_RATE_HZ:
        return None
    margin = max(len(samples) // 4, MIN_PART_S * SAMPLE_RATE_HZ)
    middle = samples[margin : len(samples) - margin]
    num_frames = len(middle) // _FRAME
    cut = len(samples) // 2
    if num_frames > _PAUSE_FRAMES:
        frames = middle[: num_frames * _FRAME].reshape(num_frames, _FRAME)
        power = np.square(frames, dtype=np.float64).sum(axis=1)
        around = np.convolve(power, np.ones(_PAUSE_FRAMES), mode="valid")
        cut = margin + (int(np.argmin(around)) * 2 + _PAUSE_FRAMES) * _FRAME // 2
    return (
        replace(window, key=f"{window.key}<", samples=samples[:cut], language=language),
        replace(window, key=f"{window.key}>", samples=samples[cut:], language=language),
    )


_PAUSE_FRAMES = 8
"""160 ms: a pause between words, not the closure of a consonant."""


def graft(head: str, text: str) -> str:
    """Return `head` and what of `text` comes after it.

    What was heard before an answer went astray stands: it had more context, and may have been told
    already. `text`, heard anew, goes on where its beginning is most like `head`.
    """
    if not head or text.startswith(head):
        return text
    old = np.array(list(text))
    columns = np.arange(len(old) + 1)
    distances = columns.copy()  # of nothing to each beginning of `text`
    for number, char in enumerate(head, start=1):
        above = distances + 1
        above[0] = number
        above[1:] = np.minimum(above[1:], distances[:-1] + (old != char))
        # Insertions: a running minimum of what a column costs without them.
        distances = np.minimum.accumulate(above - columns) + columns
    end = len(old) - int(np.argmin(distances[::-1]))
    rest = text[end:]
    return f"{head}{rest}" if rest[:1].isspace() else join_texts((head, rest))


def merge(window: Window, draft: Hypothesis, parts: Sequence[Hypothesis], text: str) -> Hypothesis:
    """Return what a window says now.

    Args:
        draft: Its first answer.
        parts: The answers of its parts, of one segment each at most.
        text: What it says.
    """
    segments = [segment for part in parts for segment in part.segments] or list(draft.segments)
    merged = Hypothesis(
        language=draft.language,
        warnings=tuple(dict.fromkeys(code for part in parts for code in part.warnings)),
    )
    if not text or not segments:
        return merged
    likely = [segment.avg_logprob for segment in segments if segment.avg_logprob is not None]
    ratios = [s.compression_ratio for s in segments if s.compression_ratio is not None]
    whole = replace(
        segments[0],
        text=text,
        start_ms=0,
        end_ms=window.duration_ms,
        tokens=(),
        token_logprobs=graft_logprobs(text, join_logprobs(draft.segments), join_logprobs(segments)),
        avg_logprob=min(likely, default=None),
        compression_ratio=max(ratios, default=None),
    )
    return replace(merged, segments=(whole,))
