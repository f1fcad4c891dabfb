"""One stream: audio in, confirmed text out. Imports torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from adapters.qwen3_asr.answers import TEXT_TAG, AnswerStream, split_answer
from adapters.qwen3_asr.decoding import Decoded
from adapters.qwen3_asr.loops import LOOP_COLLAPSED, LoopWatch
from adapters.qwen3_asr.prompts import NoSpeech, PromptLayout
from adapters.qwen3_asr.runtime import Qwen3Runtime
from adapters.streaming.base import StreamUpdate
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.intake import Chunk
from adapters.streaming.state import StreamingASRState
from adapters.streaming.stepped import SteppedSession
from adapters.streaming.utterance import Utterance
from core.logprobs import fit_logprobs, split_logprobs
from core.transcript import Segment, TokenLogprob, joint, samples_to_ms

TOKEN_LIMIT = "token_limit_reached"  # noqa: S105 - the code of a warning

LIKELY_LOGPROB = math.log(0.5)
"""An answer likelier than this is likelier than all others together; no search could better it."""


@dataclass(slots=True, eq=False)
class Turn:
    """An utterance that is heard.

    Attributes:
        hypothesis: The last answer's tokens, forced prefix included.
        logprobs: Of each of them, as it was when it was first written.
        is_current: Whether that answer heard all the utterance's audio and ended by itself.
        closes: Whether the utterance ends with the audio it has.
        answer: What the model says of the audio in hand, once it was asked.
    """

    audio: Utterance
    state: StreamingASRState[int]
    reader: AnswerStream
    hypothesis: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_current: bool = False
    closes: bool = False
    answer: Decoded | None = None
    _loops: LoopWatch = field(default_factory=LoopWatch)

    def needs_answer(self) -> bool:
        """Whether the model must be asked; otherwise the last answer still stands."""
        return not self.is_current and self.answer is None

    def tail(self) -> list[int]:
        """Return the tokens that follow the audio: the prompt's end and what is confirmed."""
        return [*self.audio.prompt.tail, *self.state.prefix]

    def no_speech(self) -> NoSpeech | None:
        """Return where to ask whether anybody speaks; not once something of it is confirmed."""
        return None if self.state.prefix else self.audio.prompt.no_speech

    def loops(self) -> LoopWatch:
        """Return a watch that has read what is confirmed."""
        for token in self.state.prefix[self._loops.num_tokens :]:
            self._loops.take(token)
        return self._loops.copy()

    def take_answer(self) -> Decoded | None:
        """Make the answer the hypothesis, without what a loop in it says again; return it."""
        answer, self.answer = self.answer, None
        if answer is not None:
            num_forced = len(self.state.prefix)
            end = None if answer.loop_end is None else max(num_forced, answer.loop_end)
            self.hypothesis = [*self.state.prefix, *answer.tokens][:end]
            self.logprobs = [*self.logprobs[:num_forced], *answer.logprobs][:end]
            self.is_current = answer.has_ended
        return answer


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
        *,
        with_logprobs: bool = False,
    ) -> None:
        super().__init__(config, language)
        self._runtime = runtime
        self._with_logprobs = with_logprobs
        self._config = config
        self._prompt = prompt
        self._turns: list[Turn] = []  # the open one; while that ends, maybe the next
        self._late: StreamUpdate | None = None

    def prepare(self) -> bool:
        """Take the next chunk in hand; return whether the session has something to do.

        With one that ends an utterance comes the first of the next, where there is one already:
        they do not see each other, so one step hears both.
        """
        if self._late is not None:
            return True
        if not super().prepare():
            return False
        if len(self._turns) == 1 and self._turns[0].closes:
            chunk = self._intake.take()
            if chunk is not None and len(chunk.samples):
                self._turns.append(self._begin(chunk))
        return True

    def unanswered(self) -> list[Turn]:
        """Return the utterances the model must be asked about before `take_update`."""
        return [turn for turn in self._turns if turn.needs_answer()] if self._late is None else []

    def take_update(self) -> StreamUpdate:
        """Say what the answers to `unanswered` add."""
        if self._late is not None:
            update, self._late = self._late, None
            return update
        update = self._settle(self._turns[0])
        if self._turns and self._turns[0].answer is not None and not self._turns[0].closes:
            # The beginning of the next utterance: as a rule nothing of it is confirmed yet.
            begun = self._settle(self._turns[0])
            self._late = begun if begun.delta else None
        return update

    def _settle(self, turn: Turn) -> StreamUpdate:
        """Take the model's continuation of the confirmed tokens."""
        answer = turn.take_answer()
        if answer is None:
            return self._close(turn)
        if turn.closes:
            is_loop = answer.loop_end is not None
            doubts = {LOOP_COLLAPSED: is_loop, TOKEN_LIMIT: not (answer.has_ended or is_loop)}
            warnings = tuple(code for code, is_so in doubts.items() if is_so)
            return self._close(turn, warnings=warnings)
        self._is_due = False
        if not answer.has_ended:
            return StreamUpdate(delta="")  # it went astray: more audio may bring it back
        is_likely = answer.sum_logprob >= LIKELY_LOGPROB
        return self._append(turn, turn.state.update(turn.hypothesis, is_likely=is_likely))

    def _close(self, turn: Turn, *, warnings: tuple[str, ...] = ()) -> StreamUpdate:
        """End the open utterance with its last hypothesis."""
        told = self._append(turn, turn.state.finalize(turn.hypothesis))
        self._turns.pop(0)
        self._is_due = bool(self._turns)
        segment = None
        if turn.reader.sent:
            segment = Segment(
                text=turn.reader.sent,
                start_ms=samples_to_ms(turn.audio.start_sample),
                end_ms=samples_to_ms(turn.audio.start_sample + turn.audio.num_samples),
                tokens=tuple(self._runtime.encode_text(turn.reader.sent)),
                language=self.language or split_answer(self._raw(turn.hypothesis))[0],
            )
        return replace(told, closes=True, segment=segment, warnings=warnings)

    def _accept(self, chunk: Chunk) -> None:
        if self._turns:
            self._hear(self._turns[0], chunk)
        elif len(chunk.samples):
            self._turns.append(self._begin(chunk))
        self._is_due = bool(self._turns)

    def _begin(self, chunk: Chunk) -> Turn:
        """Return a new utterance, which sees nothing of the ones before."""
        reader = AnswerStream(self._runtime.control_tokens)
        state = StreamingASRState[int](
            self._config, self._runtime.decode_text, reader=reader, is_confirmable=self._has_text
        )
        audio = Utterance(
            mel=self._runtime.mel,
            geometry=self._runtime.encoder.geometry,
            prompt=self._prompt,
            start_sample=chunk.start_sample,
        )
        turn = Turn(audio, state, reader)
        self._hear(turn, chunk)
        return turn

    @staticmethod
    def _hear(turn: Turn, chunk: Chunk) -> None:
        if len(chunk.samples):
            turn.audio.append(chunk.samples)
            turn.is_current = False
        turn.closes = chunk.closes

    def _raw(self, tokens: Sequence[int]) -> str:
        return self._runtime.decode_text(tokens)

    def _has_text(self, raw: str) -> bool:
        """Whether a confirmed part would hold transcript, not just a language that may be wrong."""
        if self.language is None and TEXT_TAG not in raw:
            return False
        return bool(split_answer(raw)[1].strip())

    def _append(self, turn: Turn, piece: str) -> StreamUpdate:
        """Add the next piece of an utterance to the text; return what that adds to the stream.

        Between the piece and the text of the utterance before there is what belongs there.
        """
        delta = piece
        if piece and turn.reader.sent == piece:
            delta = f"{joint(self.text, piece)}{piece}"
        self.text += delta
        return StreamUpdate(delta=delta, logprobs=fit_logprobs(delta, self._spell(turn, piece)))

    def _spell(self, turn: Turn, piece: str) -> tuple[TokenLogprob, ...]:
        """Return the tokens of the last piece, if they are wanted."""
        if not self._with_logprobs or not piece:
            return ()
        before = turn.reader.sent.removesuffix(piece)
        answer = Decoded(tokens=turn.hypothesis, logprobs=turn.logprobs)
        spelt = self._runtime.spell_answer(answer)
        return split_logprobs(spelt, (before, piece, ""))[1]
