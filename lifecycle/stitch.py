"""From windows' hypotheses to one transcript in media time. Pure.

What becomes of a window's segments depends on that window alone, and windows are ordered by start.
So the transcript grows from its beginning while windows are still missing: everything that starts
before the first missing window is final. `lifecycle.streaming` relies on that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.logprobs import join_logprobs
from core.transcript import Hypothesis, Segment, Word, join_texts, samples_to_ms

MIN_SEGMENT_MS = 20
"""Length given to a segment without one: the step of Whisper's timestamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """A window and what came of it.

    Attributes:
        hypothesis: None if it failed and the job goes on without it.
        error_code: Why it failed.
    """

    start_sample: int
    num_samples: int
    channel: int | None
    hypothesis: Hypothesis | None
    error_code: str | None = None

    @property
    def start_ms(self) -> int:
        """Start in media time."""
        return samples_to_ms(self.start_sample)

    @property
    def end_ms(self) -> int:
        """End in media time."""
        return samples_to_ms(self.start_sample + self.num_samples)


def stitch(windows: Iterable[WindowResult]) -> tuple[Segment, ...]:
    """Return all segments in media time, ordered by start and then by channel.

    In a channel no segment overlaps another, none is empty of text or time, and none leaves its
    window.

    Args:
        windows: In order of start; those of one channel do not overlap.
    """
    placed = [segment for window in windows for segment in place_segments(window)]
    return tuple(sorted(placed, key=lambda s: (s.start_ms, s.channel or 0)))  # stable


def place_segments(window: WindowResult) -> list[Segment]:
    """Return a window's segments in media time, repaired to follow each other inside the window.

    A segment that has no time left joins the one before it: words are never dropped.
    """
    if window.hypothesis is None:
        return []
    low, high = window.start_ms, window.end_ms
    language = window.hypothesis.language
    placed: list[Segment] = []
    for relative in window.hypothesis.segments:
        if not relative.text.strip():
            continue
        segment = relative.shift(low)
        start = max(segment.start_ms, placed[-1].end_ms if placed else low)
        end = min(max(segment.end_ms, start), high)
        if end <= start and placed:
            placed[-1] = _join(placed[-1], segment, high)
            continue
        if end <= start:
            start = max(low, min(start, high - MIN_SEGMENT_MS))
            end = min(high, start + MIN_SEGMENT_MS)
        placed.append(
            replace(
                segment,
                text=segment.text.strip(),
                start_ms=start,
                end_ms=end,
                words=_fit_words(segment.words, start, end),
                language=segment.language or language,
                channel=window.channel,
            )
        )
    return placed


def measure_coverage(
    windows: Sequence[WindowResult], *, duration_ms: int, speech_ms: int
) -> dict[str, Any]:
    """Return what was heard and what was lost, in milliseconds.

    `speech_ms` is what speech detection found, `recognised_ms` the audio in windows that were
    recognised (pauses inside them included), summed over channels under `channels=split`. A gap is
    audio that should have been recognised and was not.
    """
    lost = [window for window in windows if window.hypothesis is None]
    return {
        "duration_ms": duration_ms,
        "speech_ms": speech_ms,
        "recognised_ms": sum(w.end_ms - w.start_ms for w in windows if w.hypothesis is not None),
        "windows": len(windows),
        "gaps": [
            {
                "start_ms": window.start_ms,
                "end_ms": window.end_ms,
                "channel": window.channel,
                "reason": window.error_code,
            }
            for window in lost
        ],
    }


def collect_warnings(windows: Iterable[WindowResult]) -> list[str]:
    """Return the windows' warnings, each once, in order of appearance."""
    found = (code for w in windows if w.hypothesis is not None for code in w.hypothesis.warnings)
    return list(dict.fromkeys(found))


def dominant_language(windows: Iterable[WindowResult]) -> str | None:
    """Return the language of most of the audio that holds text, or None if there is none."""
    totals: dict[str, int] = {}
    for window in windows:
        hypothesis = window.hypothesis
        if hypothesis is not None and hypothesis.language is not None and hypothesis.segments:
            totals[hypothesis.language] = totals.get(hypothesis.language, 0) + window.num_samples
    return max(sorted(totals), key=lambda code: totals[code]) if totals else None


def _join(left: Segment, right: Segment, high: int) -> Segment:
    end = min(high, max(left.end_ms, right.end_ms))
    words = left.words + right.words
    return replace(
        left,
        text=join_texts((left.text, right.text.strip())),
        end_ms=end,
        words=_fit_words(words, left.start_ms, end),
        tokens=left.tokens + right.tokens,
        token_logprobs=join_logprobs((left, right)),
    )


def _fit_words(words: tuple[Word, ...], low: int, high: int) -> tuple[Word, ...]:
    fitted: list[Word] = []
    at = low
    for word in words:
        start = min(max(word.start_ms, at), high)
        at = min(max(word.end_ms, start), high)
        fitted.append(replace(word, start_ms=start, end_ms=at))
    return tuple(fitted)
