"""How text leaves an adapter before its window is done, or before its audio is. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from adapters.base import Samples, Window
from core.transcript import Hypothesis, Segment, TokenLogprob


class DeltaSink(Protocol):
    """Takes pieces of transcript as they are decoded."""

    def __call__(self, index: int, delta: str) -> None:
        """Take the next piece of `windows[index]`'s text.

        Called in the adapter's thread between two decoding steps: it must be quick and not raise.
        Pieces of one window arrive in order, those of different windows interleave; none is
        empty, none is taken back, and joined they are that window's `Hypothesis.text`.
        """
        ...


@runtime_checkable
class DeltaTranscriber(Protocol):
    """An adapter that can also say what it hears while it decodes.

    `isinstance(adapter, DeltaTranscriber)` tells; others give their text when a window is done.
    """

    def transcribe_stream(self, windows: Sequence[Window], sink: DeltaSink) -> list[Hypothesis]:
        """Do what `transcribe` does, and call `sink` on the way.

        The hypotheses equal `transcribe`'s. When it raises, what `sink` got for the windows is
        void: the caller starts their text again.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUpdate:
    """What a step adds to a stream's transcript.

    Attributes:
        delta: Text that follows all deltas before; often empty; never taken back.
        closes: Whether an utterance ended.
        segment: That utterance with its times in the stream, if anything was said in it.
        warnings: Codes, see `core.transcript.Hypothesis`.
        logprobs: The tokens that `delta` was written with, if the session was opened for them.
    """

    delta: str
    closes: bool = False
    segment: Segment | None = None
    warnings: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamCounters:
    """Work since the engine began; what tests and metrics look at.

    Attributes:
        num_steps: Answers, one a session and step.
        encoder_frames: Mel frames through the encoder, padding included where the model pads.
        decoder_tokens: Positions through the decoder, prompts and answers.
        reencoded_windows: Full windows encoded again because a louder passage came.
    """

    num_steps: int
    encoder_frames: int
    decoder_tokens: int
    reencoded_windows: int = 0


class StreamingSession(Protocol):
    """A stream of one speaker or room, made by `StreamingEngine.open`."""

    @property
    def text(self) -> str:
        """All deltas so far, joined."""
        ...

    @property
    def buffered_ms(self) -> int:
        """Audio pushed but not heard yet."""
        ...

    def push(self, samples: Samples) -> None:
        """Add audio: float32, mono, 16 kHz, any length."""
        ...

    def end_utterance(self) -> None:
        """End the utterance here: the speaker's turn is over."""
        ...

    def finish(self) -> None:
        """Say that no more audio comes; the steps that follow hear what is left."""
        ...


Session = TypeVar("Session", bound=StreamingSession)


class StreamingEngine(Protocol[Session]):
    """Drives the sessions of one loaded adapter; one thread calls it.

    The sessions of a step share its forward passes and nothing else: what one hears does not
    depend on the others.
    """

    @property
    def counters(self) -> StreamCounters:
        """Work done so far."""
        ...

    def open(
        self,
        *,
        language: str | None = None,
        prompt: str | None = None,
        with_logprobs: bool = False,
    ) -> Session:
        """Return a new session.

        Args:
            language: Code to force, or None to detect it in every utterance.
            prompt: Context for every utterance; it cannot inject control tokens.
            with_logprobs: Whether updates are to have `logprobs`.

        Raises:
            UnknownLanguage: The checkpoint does not know the language.
        """
        ...

    def step(self, sessions: Sequence[Session]) -> list[StreamUpdate | None]:
        """Let every session that has enough new audio hear it, all in one batch.

        Call it again until all are None: a session with much audio takes it in several steps.

        Returns:
            One update a session, in order; None for those that had nothing to do.

        Raises:
            DeviceOutOfMemory: The device has too little memory for one session. Those that could
                not be answered hear the same audio in the next step.
        """
        ...
