"""Timestamp tokens to segments, and answers for parts of a window to one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.whisper.vocabulary import TIMESTAMP_STEP_MS
from core.transcript import Hypothesis

PART_NOT_UNDERSTOOD = "part_not_understood"
"""A warning: sound of seconds follows the text of a window, and no text for it was trustworthy."""

SHORTEST_TAIL_MS = 2_500
"""Above what a pause at a window's end and an early timestamp make up together."""
_LEAST_PROGRESS_MS = 500
_SHORTEST_REST_MS = 200


@dataclass(frozen=True, slots=True)
class Span:
    """The text tokens of one segment and its times in its window."""

    tokens: tuple[int, ...]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The end of a window, to be read as a window of its own.

    Attributes:
        start_ms: Where it begins, a multiple of 20.
        is_unheard: Whether the answer stopped before it, though there is sound; otherwise the
            answer began to say what is there and did not come to its end.
    """

    start_ms: int
    is_unheard: bool


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


def split_unfinished(
    tokens: Sequence[int], *, timestamp_begin: int
) -> tuple[Sequence[int], int | None]:
    """Return the part of an answer to keep, and where to read the window again, or None.

    An answer that goes on after two timestamps in a row and ends without a third has begun a
    segment whose end it does not see: what it says there is dropped and heard again, from the
    first of the two on, as a window of its own.

    Source: openai-whisper (`transcribe.py`), `transformers` (`generation_whisper.py`,
    `_retrieve_segment`).
    """
    is_time = [token >= timestamp_begin for token in tokens]
    pairs = [at for at in range(len(tokens) - 1) if is_time[at] and is_time[at + 1]]
    if not pairs or is_time[-2:] == [False, True]:
        return tokens, None
    resume_ms = (tokens[pairs[-1]] - timestamp_begin) * TIMESTAMP_STEP_MS
    if resume_ms < _LEAST_PROGRESS_MS:
        return tokens, None
    return tokens[: pairs[-1] + 1], resume_ms


def find_rest(
    answer: Hypothesis, resume_ms: int | None, *, heard_until_ms: int, duration_ms: int
) -> Rest | None:
    """Return what of a window is to be read once more.

    Args:
        answer: To the window so far.
        resume_ms: What `split_unfinished` said.
        heard_until_ms: Where the window's last loud sound ends.
        duration_ms: Of the window.
    """
    if resume_ms is not None:
        is_long_enough = duration_ms - resume_ms >= _SHORTEST_REST_MS
        return Rest(start_ms=resume_ms, is_unheard=False) if is_long_enough else None
    if not answer.segments:
        return None
    end_ms = answer.segments[-1].end_ms
    if end_ms < _LEAST_PROGRESS_MS or heard_until_ms - end_ms < SHORTEST_TAIL_MS:
        return None
    return Rest(start_ms=-(-end_ms // TIMESTAMP_STEP_MS) * TIMESTAMP_STEP_MS, is_unheard=True)


def append(answer: Hypothesis, rest: Hypothesis, *, offset_ms: int) -> Hypothesis:
    """Return `answer` with the segments of `rest`, which begins at `offset_ms`."""
    shifted = tuple(segment.shift(offset_ms) for segment in rest.segments)
    warnings = tuple(dict.fromkeys(answer.warnings + rest.warnings))
    return replace(answer, segments=answer.segments + shifted, warnings=warnings)
