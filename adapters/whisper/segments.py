"""Timestamp tokens to segments, and answers for parts of a window to one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.whisper.vocabulary import TIMESTAMP_STEP_MS
from core.transcript import Hypothesis

SHORTEST_TAIL_MS = 2_500
"""Above what a pause at a window's end and an early timestamp make up together."""
_LEAST_PROGRESS_MS = 500


@dataclass(frozen=True, slots=True)
class Span:
    """The text tokens of one segment and its times in its window."""

    tokens: tuple[int, ...]
    start_ms: int
    end_ms: int


def cut_spans(
    tokens: Sequence[int], *, timestamp_begin: int, end: int, duration_ms: int
) -> list[Span]:
    """Cut a window's answer at its timestamp tokens.

    A span starts at the last timestamp before it (or the window's start) and ends at the next one
    (or the window's end). Times are clamped to the window: Whisper pads to 30 s and may point
    into the padding.

    Args:
        end: Id of <|endoftext|>: text lies below it.
        duration_ms: Of the window.
    """
    spans: list[Span] = []
    text: list[int] = []
    start_ms = 0
    for token in tokens:
        if token < end:
            text.append(token)
        elif token >= timestamp_begin:
            # Never back in time: a checkpoint without timestamp training may repeat itself.
            at_ms = max(start_ms, min((token - timestamp_begin) * TIMESTAMP_STEP_MS, duration_ms))
            if text:
                spans.append(Span(tuple(text), start_ms, at_ms))
                text = []
            start_ms = at_ms
    if text:
        spans.append(Span(tuple(text), start_ms, duration_ms))
    return spans


def find_tail_ms(answer: Hypothesis, heard_until_ms: int) -> int | None:
    """Return where the part of a window begins that its answer left out, or None.

    Args:
        heard_until_ms: Where the window's last loud sound ends.
    """
    if not answer.segments:
        return None
    end_ms = answer.segments[-1].end_ms
    if end_ms < _LEAST_PROGRESS_MS or heard_until_ms - end_ms < SHORTEST_TAIL_MS:
        return None
    return end_ms


def append(answer: Hypothesis, rest: Hypothesis, *, offset_ms: int) -> Hypothesis:
    """Return `answer` with the segments of `rest`, which begins at `offset_ms`."""
    shifted = tuple(segment.shift(offset_ms) for segment in rest.segments)
    return replace(answer, segments=answer.segments + shifted)
