"""Confirmed words from a model that cannot be forced to a prefix, such as Whisper. No torch."""

import unicodedata
from collections.abc import Sequence

from core.transcript import Word

_SAME_TIME_MS = 100
_LONGEST_OVERLAP = 5


class LocalAgreement:
    """Confirms what two hypotheses in a row agree on.

    The audio grows, and each step transcribes it again from `confirmed_until_ms` at the latest
    (the caller may drop audio before that, at a word's end). A word is confirmed, and never
    changed, once two steps in a row say the same up to it.

    Source: D. Macháček et al., "Turning Whisper into Real-Time Transcription System", 2023
    (LocalAgreement-2), and the overlap rule of its whisper_streaming.

    Attributes:
        confirmed_until_ms: End of the last confirmed word, in the stream.
    """

    def __init__(self) -> None:
        self.confirmed_until_ms = 0
        self._confirmed: list[Word] = []  # the last few, for overlaps
        self._open: list[Word] = []

    def update(self, words: Sequence[Word]) -> list[Word]:
        """Take the words of a step, with times in the stream; return the newly confirmed ones."""
        fresh = self._without_confirmed(words)
        agreed = 0
        for old, new in zip(self._open, fresh, strict=False):
            if _plain(old.text) != _plain(new.text):
                break
            agreed += 1
        self._open = fresh[agreed:]
        return self._confirm(fresh[:agreed])

    def finish(self) -> list[Word]:
        """Return what is still open: no more audio comes."""
        words, self._open = self._open, []
        return self._confirm(words)

    def _confirm(self, words: list[Word]) -> list[Word]:
        if words:
            self.confirmed_until_ms = max(self.confirmed_until_ms, words[-1].end_ms)
            self._confirmed = [*self._confirmed, *words][-_LONGEST_OVERLAP:]
        return words

    def _without_confirmed(self, words: Sequence[Word]) -> list[Word]:
        """Return the words after the confirmed ones; times alone are too vague to tell."""
        limit = self.confirmed_until_ms - _SAME_TIME_MS
        fresh = [word for word in words if word.start_ms > limit or not self._confirmed]
        if not fresh or fresh[0].start_ms > self.confirmed_until_ms + 1000:
            return fresh
        known = [_plain(word.text) for word in self._confirmed]
        for length in range(min(len(known), len(fresh)), 0, -1):
            if known[-length:] == [_plain(word.text) for word in fresh[:length]]:
                return fresh[length:]
        return fresh


def _plain(text: str) -> str:
    """Return the letters and digits of a word, as punctuation and case change between steps."""
    kept = (char for char in text.casefold() if unicodedata.category(char)[0] in "LMN")
    return "".join(kept) or text
