"""Confirmed words from a model that cannot be forced to a prefix, such as Whisper. No torch."""

import unicodedata
from collections.abc import Sequence
from typing import Generic, TypeVar

from adapters.streaming.state import split_words
from core.transcript import Word

W = TypeVar("W", bound=Word)

_VAGUE_MS = 1500
"""How far a word's times may differ from one step to the next."""
_MS_A_WORD = 2000.0
"""A difference of time that weighs as much as a word that differs."""


class LocalAgreement(Generic[W]):
    """Confirms what two hypotheses in a row agree on.

    The audio grows, and each step transcribes it again (the caller may drop audio before
    `confirmed_until_ms`, at a word's end). A word is confirmed, and never changed, once two steps
    in a row say the same up to it.

    Source: D. Macháček et al., "Turning Whisper into Real-Time Transcription System", 2023
    (LocalAgreement-2). Where a hypothesis goes on after the confirmed words is found by their
    text, and by times only where that leaves a choice: times move from step to step.

    Attributes:
        confirmed_until_ms: End of the last confirmed word, in the stream.
    """

    def __init__(self) -> None:
        self.confirmed_until_ms = 0
        self._confirmed: list[W] = []
        self._open: list[W] = []

    def update(self, words: Sequence[W], *, from_ms: int = 0) -> list[W]:
        """Take the words of a step; return the newly confirmed ones.

        Args:
            words: With times in the stream.
            from_ms: Where the audio that they were heard in begins.
        """
        self._confirmed = [word for word in self._confirmed if word.end_ms > from_ms]
        fresh = list(words[self._find_end(words) :])
        agreed = 0
        for old, new in zip(self._open, fresh, strict=False):
            if _plain(old.text) != _plain(new.text):
                break
            agreed += 1
        self._open = fresh[agreed:]
        return self._confirm(fresh[:agreed])

    def finish(self) -> list[W]:
        """Return what is still open: no more audio comes."""
        words, self._open = self._open, []
        return self._confirm(words)

    def _confirm(self, words: list[W]) -> list[W]:
        if words:
            self.confirmed_until_ms = max(self.confirmed_until_ms, words[-1].end_ms)
            self._confirmed += words
        return words

    def _find_end(self, words: Sequence[W]) -> int:
        """Return how many of `words` say what is confirmed already."""
        if not self._confirmed:
            return 0
        until = self.confirmed_until_ms
        first = sum(word.end_ms <= until - _VAGUE_MS for word in words)
        last = sum(word.start_ms <= until + _VAGUE_MS for word in words)
        known = [unit for word in self._confirmed for unit in _units(word)]
        heard: list[str] = []
        ends = [0]  # of each word in `heard`
        for word in words[:last]:
            heard += _units(word)
            ends.append(len(heard))
        distances = _prefix_distances(known, heard)

        def cost(count: int) -> float:
            at_ms = words[count - 1].end_ms if count else words[0].start_ms
            return distances[ends[count]] + abs(at_ms - until) / _MS_A_WORD

        return min(range(min(first, last), last + 1), key=cost) if words else 0


def _prefix_distances(known: Sequence[str], heard: Sequence[str]) -> list[int]:
    """Return the edit distance of `known` to each beginning of `heard`, the empty one first."""
    row = list(range(len(heard) + 1))
    for number, unit in enumerate(known, start=1):
        above, row = row, [number]
        for at, other in enumerate(heard):
            row.append(min(above[at] + (unit != other), above[at + 1] + 1, row[at] + 1))
    return row


def _units(word: Word) -> list[str]:
    """Return what is compared: words, but characters where no spaces are written between them."""
    return [_plain(unit) for unit in split_words(word.text.strip())]


def _plain(text: str) -> str:
    """Return the letters and digits of a word, as punctuation and case change between steps."""
    kept = (char for char in text.casefold() if unicodedata.category(char)[0] in "LMN")
    return "".join(kept) or text.strip()
