"""What adapters answer and transcripts are made of. Times are integer milliseconds."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self

from pydantic import TypeAdapter

SAMPLE_RATE_HZ = 16_000
"""The rate of all decoded samples: what Whisper's and Qwen3-ASR's feature extractors expect."""

# Scripts written without spaces between words (Unicode blocks): Thai, Lao, Khmer, Burmese, Tibetan,
# CJK symbols, kana, ideographs, full-width forms. Hangul is written with spaces and is absent.
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x0F00, 0x109F),
    (0x1780, 0x17FF),
    (0x3000, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF00, 0xFF9F),
    (0x20000, 0x323AF),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A written word, punctuation included, and when it is spoken.

    Attributes:
        probability: 0..1, or None where the aligner gives none.
    """

    text: str
    start_ms: int
    end_ms: int
    probability: float | None = None

    def __post_init__(self) -> None:
        _check_interval(self.start_ms, self.end_ms)

    def shift(self, offset_ms: int) -> Self:
        """Return the word moved by `offset_ms`."""
        return replace(self, start_ms=self.start_ms + offset_ms, end_ms=self.end_ms + offset_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """A token of the text and how likely the model found it.

    Attributes:
        utf8: Its bytes, each 0..255; a token may be a part of a character.
        logprob: Natural log of its probability, given the tokens before it.
    """

    utf8: tuple[int, ...]
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A phrase with one time interval.

    Attributes:
        text: Without surrounding white space; `join_texts` puts pieces together.
        tokens: Ids of the text tokens in the checkpoint's vocabulary.
        token_logprobs: Each token as the model wrote it, where that was asked for; see
            `core.logprobs`.
        avg_logprob: Mean natural-log probability of the tokens, end of text included.
        no_speech_prob: 0..1, that the window holds no speech (Whisper only).
        compression_ratio: UTF-8 bytes over zlib bytes; above 2.4 the text is likely a loop.
        temperature: What the accepted answer was sampled with; 0.0 is greedy.
        channel: Number of the track under `channels=split`, else None.
    """

    text: str
    start_ms: int
    end_ms: int
    words: tuple[Word, ...] = ()
    tokens: tuple[int, ...] = ()
    avg_logprob: float | None = None
    no_speech_prob: float | None = None
    compression_ratio: float | None = None
    temperature: float = 0.0
    language: str | None = None
    channel: int | None = None
    token_logprobs: tuple[TokenLogprob, ...] = ()

    def __post_init__(self) -> None:
        _check_interval(self.start_ms, self.end_ms)

    def shift(self, offset_ms: int) -> Self:
        """Return the segment moved by `offset_ms`, words included."""
        return replace(
            self,
            start_ms=self.start_ms + offset_ms,
            end_ms=self.end_ms + offset_ms,
            words=tuple(word.shift(offset_ms) for word in self.words),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """An adapter's answer for one window; times are relative to the window's start.

    Attributes:
        segments: In order; empty when nobody speaks.
        language: ISO 639-1 code (three letters where there are no two), or None if unknown.
        warnings: Codes of what a reader should know, e.g. "words_unsupported_language".
    """

    segments: tuple[Segment, ...] = ()
    language: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The segments' texts joined."""
        return join_texts(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """All segments of a job in order, and what is needed to write them in any format."""

    segments: tuple[Segment, ...]
    language: str | None
    duration_ms: int
    task: str = "transcribe"
    model: str = ""
    warnings: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        """The whole text in one line."""
        return join_texts(segment.text for segment in self.segments)


HYPOTHESIS: TypeAdapter[Hypothesis] = TypeAdapter(Hypothesis)
TRANSCRIPT: TypeAdapter[Transcript] = TypeAdapter(Transcript)


def dump_hypothesis(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return `hypothesis` as plain JSON data for `windows.hypothesis`."""
    data: dict[str, Any] = HYPOTHESIS.dump_python(hypothesis, mode="json")
    return data


def load_hypothesis(data: dict[str, Any]) -> Hypothesis:
    """Undo `dump_hypothesis`."""
    return HYPOTHESIS.validate_python(data)


def is_unspaced(char: str) -> bool:
    """Whether `char` belongs to a script that puts no spaces between words."""
    point = ord(char)
    return any(low <= point <= high for low, high in _UNSPACED)


def joint(left: str, right: str) -> str:
    """Return what belongs between two pieces of text: nothing at an unspaced seam, else a space.

    Decided for each seam, because a transcript may mix scripts. Pieces that bring their own
    white space, and empty ones, need nothing.
    """
    if not left or not right or left[-1].isspace() or right[0].isspace():
        return ""
    return "" if is_unspaced(left[-1]) and is_unspaced(right[0]) else " "


def join_texts(texts: Iterable[str]) -> str:
    """Join pieces of a transcript in order; see `joint`."""
    return reduce(lambda left, right: f"{left}{joint(left, right)}{right}", texts, "")


def samples_to_ms(num_samples: int) -> int:
    """Return the duration of `num_samples` at 16 kHz, rounded to the nearest millisecond."""
    return (num_samples * 1000 + SAMPLE_RATE_HZ // 2) // SAMPLE_RATE_HZ


def _check_interval(start_ms: int, end_ms: int) -> None:
    if not 0 <= start_ms <= end_ms:
        raise ValueError(f"not an interval: {start_ms}..{end_ms} ms")
