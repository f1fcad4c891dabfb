"""Word times from what the decoder looked at. Pure: numpy in, times out.

After openai-whisper v20250625, `timing.py`: the alignment heads' cross-attention over a finished
text follows the audio; dynamic time warping turns it into the frame at which each token begins.
"""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adapters.text import REPLACEMENT

FRAME_MS = 20
"""One encoder position."""

UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})

_PREPENDED = frozenset("\"'“¿([{-")
_APPENDED = frozenset("\"'.。,，!！?？:：”)]}、")  # noqa: RUF001 - full-width on purpose
_SENTENCE_ENDS = frozenset(".。!！?？")  # noqa: RUF001
_MEDIAN_FRAMES = 7
_LONGEST_MEDIAN_MS = 700
_SHORTEST_WORD_MS = 20
_SLACK_MS = 500

Decode = Callable[[Sequence[int]], str]
Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Piece:
    """A written word and the tokens [first, last) that spell it."""

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Milliseconds in a window."""

    start_ms: int
    end_ms: int


def split_words(tokens: Sequence[int], decode: Decode, *, is_spaced: bool) -> list[Piece]:
    """Split a text into words, punctuation attached, never inside a character.

    Args:
        is_spaced: Whether the language puts spaces between words; else every group of tokens
            that spells whole characters is one.
    """
    pieces = _split_characters(tokens, decode)
    if is_spaced:
        pieces = _join_subwords(pieces)
    pieces = _merge_prepended(pieces, is_spaced=is_spaced)
    return [piece for piece in _merge_appended(pieces) if piece.text.strip()]


def _split_characters(tokens: Sequence[int], decode: Decode) -> list[Piece]:
    """Return the smallest groups of tokens that spell whole characters."""
    whole = decode(tokens)
    pieces: list[Piece] = []
    first = num_chars = 0
    for last in range(1, len(tokens) + 1):
        text = decode(tokens[first:last])
        at = text.find(REPLACEMENT)
        # A replacement that the whole text has too is no half character but a broken one.
        broken = at >= 0 and whole[num_chars + at : num_chars + at + 1] == REPLACEMENT
        if at < 0 or broken or last == len(tokens):
            pieces.append(Piece(text, first, last))
            first = last
            num_chars += len(text)
    return pieces


def _join_subwords(pieces: Sequence[Piece]) -> list[Piece]:
    words: list[Piece] = []
    for piece in pieces:
        is_new = piece.text.startswith(" ") or piece.text.strip() in string.punctuation
        if is_new or not words:
            words.append(piece)
        else:
            words[-1] = _joined(words[-1], piece)
    return words


def _merge_prepended(pieces: Sequence[Piece], *, is_spaced: bool) -> list[Piece]:
    """Attach an opening quote or bracket to the word that follows it."""
    words: list[Piece] = []
    for piece in reversed(pieces):
        opens = piece.text.startswith(" ") or not is_spaced
        if words and opens and piece.text.strip() in _PREPENDED:
            words[-1] = _joined(piece, words[-1])
        else:
            words.append(piece)
    return words[::-1]


def _merge_appended(pieces: Sequence[Piece]) -> list[Piece]:
    words: list[Piece] = []
    for piece in pieces:
        if words and piece.text in _APPENDED and not words[-1].text.endswith(" "):
            words[-1] = _joined(words[-1], piece)
        else:
            words.append(piece)
    return words


def _joined(left: Piece, right: Piece) -> Piece:
    return Piece(left.text + right.text, left.first, right.last)


def find_token_starts(scores: Weights, *, num_frames: int) -> list[int]:
    """Return the frame at which each token begins, in order.

    Args:
        scores: Attention scores before the softmax, shape (num_heads, num_tokens, num_positions),
            of the passes that predict each token.
        num_frames: Frames of the window that hold audio; the padding behind is not looked at.
    """
    visible = scores[:, :, :num_frames].astype(np.float64)
    weights = np.exp(visible - visible.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    spread = weights.std(axis=-2, keepdims=True)
    weights = (weights - weights.mean(axis=-2, keepdims=True)) / np.maximum(spread, 1e-12)
    return _warp(-_median_filter(weights).mean(axis=0))


def _median_filter(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    half = _MEDIAN_FRAMES // 2
    if weights.shape[-1] <= half:
        return weights
    padded = np.pad(weights, ((0, 0), (0, 0), (half, half)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _MEDIAN_FRAMES, axis=-1)
    return np.asarray(np.median(windows, axis=-1), np.float64)


def _warp(cost: NDArray[np.float64]) -> list[int]:
    """Return the column at which each row begins on the cheapest monotonic path.

    A row's total is total[j] = cost[j] + min(above[j], total[j - 1]) with `above` the cheaper of
    the two cells before it in the row above; with sums S of the row's costs that is
    S[j] + min over k <= j of (above[k] - S[k - 1]), a running minimum.
    """
    num_rows, num_columns = cost.shape
    total = np.full((num_rows + 1, num_columns + 1), np.inf)
    total[0, 0] = 0.0
    for row in range(num_rows):
        above = np.minimum(total[row, :-1], total[row, 1:])
        sums = np.cumsum(cost[row])
        total[row + 1, 1:] = sums + np.minimum.accumulate(above - (sums - cost[row]))
    starts = [0] * num_rows
    row, column = num_rows, num_columns
    while row > 0:
        starts[row - 1] = column - 1
        diagonal, up, left = (
            total[row - 1, column - 1],
            total[row - 1, column],
            total[row, column - 1],
        )
        if diagonal < up and diagonal < left:
            row, column = row - 1, column - 1
        elif up < left:
            row -= 1
        else:
            column -= 1
    return starts


def time_words(words: Sequence[Piece], starts: Sequence[int]) -> list[Interval]:
    """Return when each word is spoken.

    Args:
        starts: Frame of each token, and one more at which the last token ends.
    """
    return [Interval(starts[w.first] * FRAME_MS, starts[w.last] * FRAME_MS) for w in words]


def shorten_long(words: Sequence[Piece], intervals: Sequence[Interval]) -> list[Interval]:
    """Return the intervals of one segment's words without the pauses around sentences.

    The warping knows no silence: a pause belongs to the word before or after it. Next to the
    border of a sentence no word is longer than twice the median.
    """
    lengths = [i.end_ms - i.start_ms for i in intervals if i.end_ms > i.start_ms]
    if not lengths:
        return list(intervals)
    longest = round(2 * min(_LONGEST_MEDIAN_MS, float(np.median(lengths))))
    shortened = list(intervals)
    for number, interval in enumerate(intervals):
        if interval.end_ms - interval.start_ms <= longest:
            continue
        if number == 0 or words[number - 1].text[-1:] in _SENTENCE_ENDS:
            shortened[number] = replace(interval, start_ms=interval.end_ms - longest)
        elif number == len(words) - 1 or words[number].text[-1:] in _SENTENCE_ENDS:
            shortened[number] = replace(interval, end_ms=interval.start_ms + longest)
    return shortened


def settle(intervals: Sequence[Interval], *, low_ms: int, high_ms: int) -> list[Interval]:
    """Return the intervals in order, inside [low_ms, high_ms], apart, and none of them empty.

    Returns nothing if there is no room for that many.
    """
    count = len(intervals)
    if not count or high_ms - low_ms < count:
        return []
    shortest = min(_SHORTEST_WORD_MS, (high_ms - low_ms) // count)
    # Word i must leave room for i words before it and for the others behind it.
    starts, at = [], low_ms
    for number, interval in enumerate(intervals):
        latest = high_ms - (count - number) * shortest
        at = min(max(interval.start_ms, at), latest)
        starts.append(at)
        at += shortest
    settled = []
    for (start, following), interval in zip(pairwise([*starts, high_ms]), intervals, strict=True):
        end = min(max(interval.end_ms, start + shortest), following)
        settled.append(Interval(start, end))
    return settled


def segment_room(segment: Interval, *, after_ms: int, before_ms: int) -> Interval:
    """Return where a segment's words may lie: near it, after the last word, in the window."""
    start = max(after_ms, min(segment.start_ms - _SLACK_MS, before_ms))
    return Interval(start, max(start, min(segment.end_ms + _SLACK_MS, before_ms)))
