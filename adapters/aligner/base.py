"""The contract of forced alignment: a known text, and when each of its words is spoken."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from adapters.base import Samples
from core.transcript import Word

NO_ALIGNER = "words_no_aligner"
UNSUPPORTED_LANGUAGE = "words_unsupported_language"
TOKENIZER_MISSING = "words_tokenizer_missing"
WINDOW_TOO_LONG = "words_window_too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentRequest:
    """A text and its audio.

    Attributes:
        samples: Shape (num_samples,), float32, mono, 16 kHz.
        language: Code of the text's language, or None if unknown.
    """

    samples: Samples
    text: str
    language: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """When the words of a text are spoken.

    Attributes:
        words: In order, without overlap, each longer than zero and inside the audio; their texts
            hold every character of the text but white space between words. Empty if `warning`.
        warning: Code of why there are no words, or None.
    """

    words: tuple[Word, ...] = ()
    warning: str | None = None


class WordAligner(Protocol):
    """Finds word times."""

    def align(self, requests: Sequence[AlignmentRequest]) -> list[Alignment]:
        """Return one alignment a request, in order.

        Raises:
            DeviceOutOfMemory: The device has too little memory even for one at a time.
            CheckpointInvalid: The aligner's folder cannot be loaded.
        """
        ...

    def close(self) -> None:
        """Free the device's memory."""
        ...
