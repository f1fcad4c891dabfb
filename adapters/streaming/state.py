"""What of a hypothesis about growing audio is certain: rollback by tokens. No torch."""

import re
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from adapters.streaming.config import ChunkedStreamingConfig
from adapters.text import REPLACEMENT

Unit = TypeVar("Unit")

# White space, then one character of a script without spaces, or a run of others; or the white
# space that ends the text.
_UNSPACED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
_UNSPACED += "\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f\U00020000-\U000323af"
_WORDS = re.compile(rf"\s*(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)|\s+")


class Reader(Protocol):
    """Turns raw text that only grows into pieces to show, none of which is taken back."""

    def update(self, raw: str) -> str:
        """Return the next piece, for the raw text so far."""
        ...

    def finish(self, raw: str) -> str:
        """Return the last piece, for the whole raw text."""
        ...


class PlainReader:
    """Shows raw text as it is."""

    def __init__(self) -> None:
        self._sent = ""

    def update(self, raw: str) -> str:
        """See `Reader`."""
        delta, self._sent = raw[len(self._sent) :], raw
        return delta

    def finish(self, raw: str) -> str:
        """See `Reader`."""
        return self.update(raw)


class StreamingASRState(Generic[Unit]):
    """The confirmed part of one utterance's transcript.

    Each step brings a hypothesis about all audio so far. Its last `num_unfixed_tokens` units may
    still change; those before them are confirmed, and from then on every hypothesis must begin
    with them (`prefix`: they are forced on the model), so that what was shown stays true. Units
    are a tokenizer's tokens, where a character may be split over several: a confirmed part never
    ends inside one. For a model that cannot be forced they are written words (`split_words`); a
    hypothesis that contradicts what is confirmed then confirms nothing.

    Source: the schedule is that of QwenLM/Qwen3-ASR c17a131, qwen_asr streaming (2 chunks without
    a prefix, then 5 tokens rolled back).
    """

    def __init__(
        self,
        config: ChunkedStreamingConfig,
        decode: Callable[[Sequence[Unit]], str],
        *,
        reader: Reader | None = None,
        is_confirmable: Callable[[str], bool] = bool,
    ) -> None:
        self._config = config
        self._decode = decode
        self._reader = reader or PlainReader()
        self._is_confirmable = is_confirmable
        self._confirmed: tuple[Unit, ...] = ()
        self._last: Sequence[Unit] = ()  # hypothesis
        self._num_steps = 0

    @property
    def prefix(self) -> tuple[Unit, ...]:
        """The units the next hypothesis must begin with."""
        return self._confirmed

    def update(self, units: Sequence[Unit], *, is_likely: bool = True) -> str:
        """Take the hypothesis of a step and return the newly confirmed text.

        Args:
            units: All of the utterance so far.
            is_likely: Whether the model holds it for likelier than not; what is not is confirmed
                as far as the step before said the same.
        """
        self._num_steps += 1
        last, self._last = self._last, units
        if self._num_steps < self._config.num_unfixed_chunks or not self._extends(units):
            return ""
        stable = roll_back(units, self._config.num_unfixed_tokens, self._decode)
        if not is_likely:
            agreed = _count_equal(units, last)
            stable = roll_back(units[: min(agreed, len(stable))], 0, self._decode)
        if len(stable) <= len(self._confirmed):
            return ""
        raw = self._decode(stable)
        if not self._is_confirmable(raw):
            return ""
        self._confirmed = tuple(stable)
        return self._reader.update(raw)

    def finalize(self, units: Sequence[Unit]) -> str:
        """Take the hypothesis of the last step and return all text not shown yet."""
        rest = units[len(self._confirmed) :]
        self._confirmed = (*self._confirmed, *rest)
        return self._reader.finish(self._decode(self._confirmed))

    def _extends(self, units: Sequence[Unit]) -> bool:
        return tuple(units[: len(self._confirmed)]) == self._confirmed


def _count_equal(units: Sequence[Unit], others: Sequence[Unit]) -> int:
    """Return how many units two hypotheses begin with alike."""
    pairs = zip(units, others, strict=False)
    return next(
        (at for at, (unit, other) in enumerate(pairs) if unit != other),
        min(len(units), len(others)),
    )


def roll_back(
    units: Sequence[Unit], num_unfixed: int, decode: Callable[[Sequence[Unit]], str]
) -> Sequence[Unit]:
    """Return `units` without the last `num_unfixed`, and without half a character at the end."""
    end = max(0, len(units) - num_unfixed)
    while end and decode(units[:end]).endswith(REPLACEMENT):
        end -= 1
    return units[:end]


def split_words(text: str) -> list[str]:
    """Return the written words of `text`, each with the white space before it.

    Characters of scripts without spaces are words by themselves. Joined they are `text`.
    """
    return _WORDS.findall(text)
