"""Words to segments: cut at sentence ends and pauses. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from adapters.text import compression_ratio
from core.transcript import Segment, Word, joint

SENTENCE_ENDS = frozenset(".!?…。！？．।؟")  # noqa: RUF001 - full-width on purpose
CLOSING = "\"'”’»)]）」』】"  # noqa: RUF001
CLAUSE_ENDS = frozenset(",;:，；：、")  # noqa: RUF001
PAUSE_MS = 800
"""Silence between words that ends a segment."""
LONGEST_MS = 15_000
"""A segment that exceeds this is cut at its best place: a clause end or its longest pause."""
_SAME_PAUSE_MS = 80
"""The aligner's resolution: pauses that differ by less are equal, and the middle one wins."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A word and where it is written."""

    word: Word
    start: int
    end: int


def segment_words(segment: Segment, words: Sequence[Word]) -> tuple[Segment, ...]:
    """Return `segment`, the text of one window, cut into phrases with times.

    Args:
        words: At least one; joined they hold all of the segment's text but white space.

    Returns:
        Pieces whose texts join to the segment's text (`core.transcript.join_texts`): nothing is
        cut where joining would not restore what stands between two words.
    """
    placed = _place(segment.text, words)
    return tuple(
        _piece(segment, short)
        for group in _cut(segment.text, placed)
        for short in _shorten(segment.text, group)
    )


def _place(text: str, words: Sequence[Word]) -> list[_Placed]:
    placed: list[_Placed] = []
    at = 0
    for word in words:
        start = text.index(word.text, at)
        at = start + len(word.text)
        placed.append(_Placed(word, start, at))
    return placed


def _cut(text: str, placed: Sequence[_Placed]) -> list[list[_Placed]]:
    groups: list[list[_Placed]] = [[placed[0]]]
    for left, right in pairwise(placed):
        if _ends_phrase(left.word, right.word) and _can_cut(text, left, right):
            groups.append([])
        groups[-1].append(right)
    return groups


def _can_cut(text: str, left: _Placed, right: _Placed) -> bool:
    """Whether joining restores what stands between the two words."""
    return text[left.end : right.start] == joint(left.word.text, right.word.text)


def _ends_phrase(word: Word, follower: Word) -> bool:
    ends_sentence = word.text.rstrip(CLOSING)[-1:] in SENTENCE_ENDS
    return ends_sentence or follower.start_ms - word.end_ms >= PAUSE_MS


def _shorten(text: str, placed: list[_Placed]) -> list[list[_Placed]]:
    first, last = placed[0].word, placed[-1].word
    places = [at for at in range(1, len(placed)) if _can_cut(text, placed[at - 1], placed[at])]
    if not places or last.end_ms - first.start_ms <= LONGEST_MS:
        return [placed]
    middle = (first.start_ms + last.end_ms) / 2

    def rank(at: int) -> tuple[bool, int, float]:
        left, right = placed[at - 1].word, placed[at].word
        pause = (right.start_ms - left.end_ms) // _SAME_PAUSE_MS
        return left.text[-1:] in CLAUSE_ENDS, pause, -abs(right.start_ms - middle)

    best = max(places, key=rank)
    return [*_shorten(text, placed[:best]), *_shorten(text, placed[best:])]


def _piece(segment: Segment, placed: Sequence[_Placed]) -> Segment:
    text = segment.text[placed[0].start : placed[-1].end]
    words = tuple(each.word.shift(segment.start_ms) for each in placed)
    return replace(
        segment,
        text=text,
        start_ms=words[0].start_ms,
        end_ms=words[-1].end_ms,
        words=words,
        compression_ratio=compression_ratio(text),
        tokens=(),
    )
