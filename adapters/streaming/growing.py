"""Streams on models that cannot be forced to a prefix, such as Whisper. No torch.

Each step transcribes the open utterance anew, with word times, and gives out what two steps in a
row agree on. The work of a step is bounded: an utterance ends at a pause or before the model's
window is full, and audio whose words are settled is dropped. What sounds like no speech is never
transcribed, as such models invent words for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from adapters.base import Adapter, Samples, Window
from adapters.streaming.agreement import LocalAgreement
from adapters.streaming.base import StreamCounters, StreamUpdate
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.intake import Chunk
from adapters.streaming.stepped import SteppedSession
from adapters.streaming.words import HeardWord, set_apart, spaced_words
from core import errors
from core.audio.speech import SpeechDetector
from core.logprobs import fit_logprobs
from core.options import Timestamps
from core.transcript import (
    SAMPLE_RATE_HZ,
    Hypothesis,
    Segment,
    TokenLogprob,
    joint,
    samples_to_ms,
)

TRIM_ABOVE_MS = 15_000
"""Open audio beyond this is cut after a settled sentence, beyond `_TRIM_ANYWHERE_MS` after any
settled word. Source: the 15 s of whisper_streaming (Macháček et al., 2023)."""
_TRIM_ANYWHERE_MS = 20_000
_CONTEXT_CHARS = 200
_SENTENCE_ENDS = (".", "?", "!", "。", "？", "！")  # noqa: RUF001 - full-width on purpose
_MEL_FRAME_MS = 10

_DETECTOR_FRAMES = 4
_MIN_SPEECH = 0.5
_MIN_SPEECH_FRAMES = 3
"""About 100 ms: the shortest words; single frames are clicks."""


@dataclass(slots=True, kw_only=True)
class _Turn:
    """The open utterance.

    Attributes:
        start_sample: Where `samples` begin in the stream: its audio may have lost its beginning.
        agreement: What of it is settled.
        words: The settled words, each with the white space before it.
        language: Code the model named when the first words were settled.
        is_current: Whether the last answer heard all its audio.
        closes: Whether it ends with the audio it has.
    """

    start_sample: int
    samples: Samples
    agreement: LocalAgreement[HeardWord] = field(default_factory=LocalAgreement)
    words: list[HeardWord] = field(default_factory=list)
    language: str | None = None
    has_speech: bool = False
    is_current: bool = False
    closes: bool = False

    @property
    def text(self) -> str:
        """The settled text."""
        return "".join(word.text for word in self.words).strip()


class GrowingSession(SteppedSession):
    """See `adapters.streaming.base.StreamingSession`. Made by `GrowingEngine.open`."""

    def __init__(
        self,
        config: ChunkedStreamingConfig,
        *,
        language: str | None,
        prompt: str | None,
        with_logprobs: bool,
    ) -> None:
        super().__init__(config, language)
        self._prompt = prompt
        self._with_logprobs = with_logprobs
        self._detector = SpeechDetector(batch_frames=_DETECTOR_FRAMES)
        self._turn: _Turn | None = None

    def needs_answer(self) -> bool:
        """Whether the model must be asked."""
        turn = self._open_turn()
        return turn.has_speech and not turn.is_current

    def window(self) -> Window:
        """Return the open utterance's audio as a window."""
        turn = self._open_turn()
        start_ms = samples_to_ms(turn.start_sample)
        # Only what is not in the audio any more: a model skips what the context says already.
        gone = "".join(word.text for word in turn.words if word.end_ms <= start_ms)
        context = [self._prompt or "", gone.strip()[-_CONTEXT_CHARS:]]
        return Window(
            key="stream",
            samples=turn.samples,
            language=self.language or turn.language,
            prompt=" ".join(part for part in context if part) or None,
            timestamps=Timestamps.WORD,
            with_logprobs=self._with_logprobs,
        )

    def take_answer(self, hypothesis: Hypothesis) -> StreamUpdate:
        """Take the model's answer for `window`."""
        turn = self._open_turn()
        from_ms = samples_to_ms(turn.start_sample)
        words = spaced_words(hypothesis, offset_ms=from_ms)
        if words and turn.words:
            text = words[0].text
            words[0] = replace(words[0], text=f"{joint(turn.text, text)}{text}")
        settled = turn.agreement.update(words, from_ms=from_ms)
        if settled and turn.language is None:
            turn.language = hypothesis.language
        turn.is_current, self._is_due = True, False
        told = self._append(turn, settled)
        if turn.closes:
            update = self.take_nothing()
            delta, logprobs = told.delta + update.delta, told.logprobs + update.logprobs
            return replace(update, delta=delta, logprobs=logprobs)
        self._trim(turn)
        return told

    def take_nothing(self) -> StreamUpdate:
        """Go on without an answer: nothing was said, or the last one still stands."""
        turn = self._open_turn()
        self._is_due = False
        if not turn.closes:
            return StreamUpdate(delta="")
        told = self._append(turn, turn.agreement.finish())
        self._turn = None
        segment = None
        if turn.words:
            words = set_apart([word.plain() for word in turn.words])
            segment = Segment(
                text=turn.text,
                start_ms=words[0].start_ms,
                end_ms=words[-1].end_ms,
                words=tuple(words),
                language=self.language or turn.language,
            )
        return replace(told, closes=True, segment=segment)

    def _accept(self, chunk: Chunk) -> None:
        if self._turn is None:
            if not len(chunk.samples):
                return
            empty = np.zeros(0, dtype=np.float32)
            self._turn = _Turn(start_sample=chunk.start_sample, samples=empty)
        turn = self._turn
        if len(chunk.samples):
            turn.samples = np.concatenate([turn.samples, chunk.samples])
            turn.has_speech |= self._hears_speech(chunk.samples)
            turn.is_current = False
        turn.closes = chunk.closes
        self._is_due = True

    def _hears_speech(self, samples: Samples) -> bool:
        likely = self._detector.feed(samples).probabilities >= _MIN_SPEECH
        return int(likely.sum()) >= _MIN_SPEECH_FRAMES

    def _append(self, turn: _Turn, words: Sequence[HeardWord]) -> StreamUpdate:
        """Add settled words to the text; return it with what belongs before it."""
        delta = ""
        logprobs: list[TokenLogprob] = []
        for word in words:
            text = word.text
            if not turn.words:
                text = text.strip()
                text = f"{joint(self.text, text)}{text}"
            turn.words.append(replace(word, text=text))
            self.text += text
            delta += text
            logprobs += fit_logprobs(text, word.logprobs)
        return StreamUpdate(delta=delta, logprobs=tuple(logprobs))

    def _trim(self, turn: _Turn) -> None:
        """Drop audio whose words are settled once there is much of it."""
        length_ms = samples_to_ms(len(turn.samples))
        if length_ms <= TRIM_ABOVE_MS or not turn.words:
            return
        ends = [w.end_ms for w in turn.words if w.text.endswith(_SENTENCE_ENDS)]
        if length_ms > _TRIM_ANYWHERE_MS:
            ends.append(turn.agreement.confirmed_until_ms)
        start = max(ends, default=0) * SAMPLE_RATE_HZ // 1000
        num_samples = min(start - turn.start_sample, len(turn.samples))
        if num_samples > 0:
            turn.samples = turn.samples[num_samples:]
            turn.start_sample += num_samples

    def _open_turn(self) -> _Turn:
        if self._turn is None:
            raise LookupError("no utterance is open")
        return self._turn


class GrowingEngine:
    """See `adapters.streaming.base.StreamingEngine`; for any adapter that gives word times."""

    def __init__(self, adapter: Adapter, config: ChunkedStreamingConfig | None = None) -> None:
        self._adapter = adapter
        self._config = config or ChunkedStreamingConfig()
        self._num_steps = 0
        self._frames = 0
        self._tokens = 0

    @property
    def counters(self) -> StreamCounters:
        """Work done so far."""
        return StreamCounters(self._num_steps, self._frames, self._tokens)

    def open(
        self,
        *,
        language: str | None = None,
        prompt: str | None = None,
        with_logprobs: bool = False,
    ) -> GrowingSession:
        """See `StreamingEngine`."""
        if language is not None and language not in self._adapter.languages:
            raise errors.UnknownLanguage(
                f"{language!r} is not among this model's languages", param="language"
            )
        return GrowingSession(
            self._config, language=language, prompt=prompt, with_logprobs=with_logprobs
        )

    def step(self, sessions: Sequence[GrowingSession]) -> list[StreamUpdate | None]:
        """See `StreamingEngine`."""
        due = [session for session in sessions if session.prepare()]
        asked = [session for session in due if session.needs_answer()]
        answers = dict(zip(map(id, asked), self._answer(asked), strict=True)) if asked else {}
        updates = {
            id(session): session.take_answer(answers[id(session)])
            if id(session) in answers
            else session.take_nothing()
            for session in due
        }
        return [updates.get(id(session)) for session in sessions]

    def _answer(self, sessions: Sequence[GrowingSession]) -> list[Hypothesis]:
        windows = [session.window() for session in sessions]
        try:
            hypotheses = self._adapter.transcribe(windows)
        except errors.DeviceOutOfMemory:
            if len(sessions) == 1:
                raise
            half = len(sessions) // 2
            return [*self._answer(sessions[:half]), *self._answer(sessions[half:])]
        padded_ms = self._adapter.spec.padded_ms
        self._num_steps += len(windows)
        self._frames += sum(max(padded_ms, w.duration_ms) // _MEL_FRAME_MS for w in windows)
        self._tokens += sum(len(s.tokens) for h in hypotheses for s in h.segments)
        return hypotheses
