"""Words of an answer as a stream tells them: with their white space and their tokens. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.logprobs import split_logprobs
from core.transcript import Hypothesis, Segment, TokenLogprob, Word, joint


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardWord(Word):
    """A word and the tokens it was written with, where those are wanted."""

    logprobs: tuple[TokenLogprob, ...] = ()

    def plain(self) -> Word:
        """Return the word without white space and tokens."""
        text, probability = self.text.strip(), self.probability
        return Word(text=text, start_ms=self.start_ms, end_ms=self.end_ms, probability=probability)


def spaced_words(hypothesis: Hypothesis, *, offset_ms: int) -> list[HeardWord]:
    """Return the words of an answer, each with the white space before it; joined they are the text.

    A segment without words is one.
    """
    words: list[HeardWord] = []
    before = ""
    for segment in hypothesis.segments:
        own = _words_of(segment, before)
        pieces = split_logprobs(segment.token_logprobs, [word.text for word in own])
        for word, logprobs in zip(own, pieces, strict=True):
            words.append(_heard(word.shift(offset_ms), logprobs))
        before = segment.text
    return words


def set_apart(words: Sequence[Word]) -> list[Word]:
    """Return words without overlap, in order and none of them empty.

    Those that were settled in different steps may overlap, as times move from one to the next:
    each gives up half of that.
    """
    apart: list[Word] = []
    for word in words:
        start_ms = word.start_ms
        if apart and start_ms < apart[-1].end_ms:
            last = apart[-1]
            start_ms = max((start_ms + last.end_ms) // 2, last.start_ms + 1)
            apart[-1] = replace(last, end_ms=start_ms)
        apart.append(replace(word, start_ms=start_ms, end_ms=max(word.end_ms, start_ms + 1)))
    return apart


def _words_of(segment: Segment, before: str) -> list[Word]:
    words: list[Word] = []
    at = 0
    whole = Word(text=segment.text, start_ms=segment.start_ms, end_ms=segment.end_ms)
    for number, word in enumerate(segment.words or (whole,)):
        found = segment.text.find(word.text.strip(), at)
        end = found + len(word.text.strip()) if found >= 0 else at
        text = segment.text[at:end]
        if number == 0:
            text = f"{joint(before, text)}{text}"
        at = end
        if text:
            words.append(replace(word, text=text))
    if not words:
        return [replace(whole, text=f"{joint(before, segment.text)}{segment.text}")]
    words[-1] = replace(words[-1], text=words[-1].text + segment.text[at:])
    return words


def _heard(word: Word, logprobs: tuple[TokenLogprob, ...]) -> HeardWord:
    return HeardWord(
        text=word.text,
        start_ms=word.start_ms,
        end_ms=word.end_ms,
        probability=word.probability,
        logprobs=logprobs,
    )
