"""What every stream does with its audio before a model hears it. No torch."""

from abc import ABC, abstractmethod

from adapters.base import Samples
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.intake import Chunk, Intake


class SteppedSession(ABC):
    """The half of `adapters.streaming.base.StreamingSession` that is the same for all models.

    Attributes:
        text: All deltas so far, joined.
        language: Code to force in every utterance, or None to detect it in each.
    """

    def __init__(self, config: ChunkedStreamingConfig, language: str | None) -> None:
        self.text = ""
        self.language = language
        self._intake = Intake(config)
        self._is_due = False

    @property
    def buffered_ms(self) -> int:
        """Audio pushed but not heard yet."""
        return self._intake.buffered_ms

    def push(self, samples: Samples) -> None:
        """Add audio: float32, mono, 16 kHz, any length."""
        self._intake.push(samples)

    def end_utterance(self) -> None:
        """End the utterance here: the speaker's turn is over."""
        self._intake.end_utterance()

    def finish(self) -> None:
        """Say that no more audio comes; the steps that follow hear what is left."""
        self._intake.finish()

    def prepare(self) -> bool:
        """Take the next chunk in hand; return whether the session has something to do.

        A chunk in hand stays so until the step's update is taken: a step that fails is repeated
        with the same audio.
        """
        while not self._is_due:
            chunk = self._intake.take()
            if chunk is None:
                return False
            self._accept(chunk)
        return True

    @abstractmethod
    def _accept(self, chunk: Chunk) -> None:
        """Add `chunk` to the open utterance or begin one; `_is_due` if that is a step."""
