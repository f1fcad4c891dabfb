"""Text of a window while it is decoded: only what the rest of the answer leaves as it is. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from adapters.text import REPLACEMENT, letters_of, loop_ratio
from adapters.whisper.fallback import MAX_NO_SPEECH_PROB
from adapters.whisper.segments import cut_spans
from core.transcript import is_unspaced, join_texts

# Well inside the thresholds of `fallback`, so that what was told is hardly ever tried again.
_MIN_AVG_LOGPROB = -0.7
_MAX_LOOP_RATIO = 1.9
_MIN_TOKENS = 6

_LONGEST_PERIOD = 16
"""Tokens of a phrase whose third time in a row is not told before something else follows: it may
be a loop that begins, and another try of it would go on from what was told."""

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """An answer that is not complete.

    Attributes:
        tokens: After the prefix, timestamps included.
        avg_logprob: Mean natural-log probability of them.
    """

    tokens: Sequence[int]
    avg_logprob: float
    no_speech_prob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Ids that separate text tokens from others."""

    timestamp_begin: int
    end: int


class Voice:
    """Tells one window's text in pieces.

    A segment after the first is told once it is closed: one that the window's end cuts off is
    dropped and read again (`segments.split_unfinished`). Words of the first are told one by one.

    Attributes:
        told: The pieces so far, joined.
    """

    def __init__(
        self, decode: Decode, marks: Marks, *, prompt: str | None, tell: Callable[[str], None]
    ) -> None:
        self.told = ""
        self._told_of: Sequence[int] = ()  # the answer it was told of
        self._decode = decode
        self._marks = marks
        self._prompt = letters_of(prompt or "")
        self._tell = tell

    def hear(self, progress: Progress) -> None:
        """Take the answer so far."""
        is_doubtful = (
            progress.no_speech_prob > MAX_NO_SPEECH_PROB
            or progress.avg_logprob < _MIN_AVG_LOGPROB
            or len(progress.tokens) < _MIN_TOKENS
            or self._says_thrice(progress.tokens)
        )
        if is_doubtful:
            return
        text = settled_text(progress.tokens, self._decode, self._marks)
        if len(text) <= len(self.told) or not text.startswith(self.told):
            return
        if loop_ratio(text) > _MAX_LOOP_RATIO or letters_of(text) in self._prompt:
            return  # a loop, or the prompt again: another try may follow
        self._told_of = progress.tokens
        self._say(text)

    def find_told_tokens(self) -> tuple[int, ...]:
        """Return the tokens of what was told, for another try to begin with them."""
        tokens = tuple(self._told_of)
        ends = range(len(tokens), 0, -1)
        return next((tokens[:end] for end in ends if self._is_told(tokens[:end])), ())

    def _says_thrice(self, tokens: Sequence[int]) -> bool:
        text = [token for token in tokens if token < self._marks.end]
        periods = range(1, min(_LONGEST_PERIOD, len(text) // 3) + 1)
        return any(text[-p:] == text[-2 * p : -p] == text[-3 * p : -2 * p] for p in periods)

    def _is_told(self, tokens: Sequence[int]) -> bool:
        closed, rest = _read(tokens, self._decode, self._marks)
        return self.told.startswith(join_texts(text for text in (*closed, rest.strip()) if text))

    def finish(self, text: str) -> None:
        """Tell what is missing of the final text."""
        if text.startswith(self.told):
            self._say(text)

    def _say(self, text: str) -> None:
        delta, self.told = text[len(self.told) :], text
        if delta:
            self._tell(delta)


def settled_text(tokens: Sequence[int], decode: Decode, marks: Marks) -> str:
    """Return the beginning of an answer's text that no continuation changes."""
    closed, rest = _read(tokens, decode, marks)
    is_time = [token >= marks.timestamp_begin for token in tokens]
    has_pair = any(one and other for one, other in pairwise(is_time))
    settled = "" if has_pair else _whole_words(rest)
    return join_texts(text for text in (*closed, settled) if text)


def _read(tokens: Sequence[int], decode: Decode, marks: Marks) -> tuple[list[str], str]:
    """Return the texts of the segments that are closed, and what follows them."""
    times = [at for at, token in enumerate(tokens) if token >= marks.timestamp_begin]
    open_at = times[-1] + 1 if times else 0
    closed = cut_spans(
        tokens[:open_at],
        timestamp_begin=marks.timestamp_begin,
        end=marks.end,
        duration_ms=30_000,
    )
    rest = [token for token in tokens[open_at:] if token < marks.end]
    return [decode(span.tokens).strip() for span in closed], decode(rest)


def _whole_words(text: str) -> str:
    """Return `text` without a word or character at its end that may not be complete."""
    text = text.strip().rstrip(REPLACEMENT)
    if not text or is_unspaced(text[-1]):
        return text
    return text[: max(text.rfind(" "), _last_unspaced(text) + 1, 0)].rstrip()


def _last_unspaced(text: str) -> int:
    return next((at for at in reversed(range(len(text))) if is_unspaced(text[at])), -1)
