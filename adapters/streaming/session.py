"""One stream: audio in, confirmed text out. Imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from adapters.qwen3_asr.answers import TEXT_TAG, AnswerStream, parse_answer, split_answer
from adapters.qwen3_asr.decoding import Decoded
from adapters.qwen3_asr.prompts import PromptLayout
from adapters.qwen3_asr.runtime import Qwen3Runtime
from adapters.streaming.base import StreamUpdate
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.intake import Chunk
from adapters.streaming.state import StreamingASRState
from adapters.streaming.stepped import SteppedSession
from adapters.streaming.utterance import Utterance
from core.transcript import Segment, joint, samples_to_ms

TOKEN_LIMIT = "token_limit_reached"  # noqa: S105 - the code of a warning


@dataclass(slots=True)
class _Turn:
    """The open utterance.

    Attributes:
        hypothesis: The last answer's tokens, forced prefix included.
        is_current: Whether that answer heard all the utterance's audio and ended by itself.
        closes: Whether the utterance ends with the audio it has.
    """

    audio: Utterance
    state: StreamingASRState[int]
    reader: AnswerStream
    hypothesis: list[int] = field(default_factory=list)
    is_current: bool = False
    closes: bool = False


class StreamSession(SteppedSession):
    """A stream of one speaker or room. Made by `StreamEngine.open`, stepped by `StreamEngine.step`.

    Attributes:
        text: All deltas so far, joined.
        language: Code to force in every utterance, or None to detect it in each.
    """

    def __init__(
        self,
        runtime: Qwen3Runtime,
        config: ChunkedStreamingConfig,
        prompt: PromptLayout,
        language: str | None,
    ) -> None:
        super().__init__(config, language)
        self._runtime = runtime
        self._config = config
        self._prompt = prompt
        self._turn: _Turn | None = None

    def needs_answer(self) -> bool:
        """Whether the model must be asked; otherwise the last answer still stands."""
        return self._turn is not None and not self._turn.is_current

    def audio(self) -> Utterance:
        """Return the open utterance's audio.

        Raises:
            LookupError: `prepare` did not say that there is something to do.
        """
        return self._open_turn().audio

    def tail(self) -> list[int]:
        """Return the tokens that follow the audio: the prompt's end and what is confirmed."""
        return [*self._prompt.tail, *self._open_turn().state.prefix]

    def closes(self) -> bool:
        """Whether the answer in hand is the utterance's last."""
        return self._open_turn().closes

    def take_answer(self, decoded: Decoded) -> StreamUpdate:
        """Take the model's continuation of the confirmed tokens."""
        turn = self._open_turn()
        turn.hypothesis = [*turn.state.prefix, *decoded.tokens]
        if turn.closes or self._is_loop(turn.hypothesis):
            return self.close(warnings=() if decoded.has_ended else (TOKEN_LIMIT,))
        self._is_due = False
        if not decoded.has_ended:
            return StreamUpdate(delta="")  # it ran away: more audio may bring it back
        turn.is_current = True
        return StreamUpdate(delta=self._append(turn.reader, turn.state.update(turn.hypothesis)))

    def close(self, *, warnings: tuple[str, ...] = ()) -> StreamUpdate:
        """End the open utterance with its last hypothesis."""
        turn = self._open_turn()
        delta = self._append(turn.reader, turn.state.finalize(turn.hypothesis))
        self._turn, self._is_due = None, False
        segment = None
        if turn.reader.sent:
            segment = Segment(
                text=turn.reader.sent,
                start_ms=samples_to_ms(turn.audio.start_sample),
                end_ms=samples_to_ms(turn.audio.start_sample + turn.audio.num_samples),
                tokens=tuple(self._runtime.encode_text(turn.reader.sent)),
                language=self.language or split_answer(self._raw(turn.hypothesis))[0],
            )
        return StreamUpdate(delta=delta, closes=True, segment=segment, warnings=warnings)

    def _accept(self, chunk: Chunk) -> None:
        if self._turn is None:
            if not len(chunk.samples):
                return
            self._turn = self._begin(chunk.start_sample)
        if len(chunk.samples):
            self._turn.audio.append(chunk.samples)
            self._turn.is_current = False
        self._turn.closes = chunk.closes
        self._is_due = True

    def _begin(self, start_sample: int) -> _Turn:
        """Return a new utterance, which sees nothing of the ones before."""
        reader = AnswerStream(self._runtime.control_tokens)
        state = StreamingASRState[int](
            self._config, self._runtime.decode_text, reader=reader, is_confirmable=self._has_text
        )
        audio = Utterance(
            mel=self._runtime.mel,
            geometry=self._runtime.encoder.geometry,
            prompt=self._prompt,
            start_sample=start_sample,
        )
        return _Turn(audio, state, reader)

    def _open_turn(self) -> _Turn:
        if self._turn is None:
            raise LookupError("no utterance is open")
        return self._turn

    def _raw(self, tokens: Sequence[int]) -> str:
        return self._runtime.decode_text(tokens)

    def _has_text(self, raw: str) -> bool:
        """Whether a confirmed part would hold transcript, not just a language that may be wrong."""
        if self.language is None and TEXT_TAG not in raw:
            return False
        return bool(split_answer(raw)[1].strip())

    def _is_loop(self, hypothesis: Sequence[int]) -> bool:
        return parse_answer(self._raw(hypothesis)).has_loop

    def _append(self, reader: AnswerStream, delta: str) -> str:
        """Return `delta` with what belongs between it and the text of the utterance before."""
        if delta and reader.sent == delta:
            delta = f"{joint(self.text, delta)}{delta}"
        self.text += delta
        return delta
