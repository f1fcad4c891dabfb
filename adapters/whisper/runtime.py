"""A loaded Whisper: windows in, hypotheses out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice

import structlog
import torch

from adapters.base import AdapterSpec, LoadOptions, Window
from adapters.streaming.base import DeltaSink
from adapters.text import compression_ratio
from adapters.weights.resolve import read_config
from adapters.whisper.adapter import WhisperAdapter
from adapters.whisper.alignment import WordTimer
from adapters.whisper.decoding import Decoder
from adapters.whisper.fallback import MAX_NO_SPEECH_PROB, Verdict
from adapters.whisper.features import WINDOW_SAMPLES
from adapters.whisper.hearing import Hearing
from adapters.whisper.ladder import Attempt, Ladder, Outcome
from adapters.whisper.network import Network
from adapters.whisper.precision import choose_precision
from adapters.whisper.segments import (
    PART_NOT_UNDERSTOOD,
    Rest,
    Span,
    append,
    cut_spans,
    find_rest,
    split_unfinished,
)
from adapters.whisper.sound import is_audible, split_samples
from adapters.whisper.vocabulary import Vocabulary
from adapters.whisper.voice import Marks, Voice
from core import errors
from core.options import TaskKind, Timestamps
from core.transcript import (
    Hypothesis,
    Segment,
    TokenLogprob,
    samples_to_ms,
)

log = structlog.get_logger(__name__)


class WhisperRuntime:
    """See `adapters.base.Adapter`."""

    def __init__(self, spec: AdapterSpec, network: Network, vocabulary: Vocabulary) -> None:
        self.spec = spec
        self._network = network
        self._vocabulary = vocabulary
        self._ladder = Ladder(Decoder(network, vocabulary), vocabulary)
        self._word_timer = WordTimer(network, vocabulary)
        self._hearing = Hearing(network, vocabulary)

    @classmethod
    def from_options(cls, options: LoadOptions) -> "WhisperRuntime":
        """Load the checkpoint that `options` names.

        Raises:
            CheckpointInvalid: The folder is no Whisper, or the number format does not fit.
        """
        if options.num_threads:
            torch.set_num_threads(options.num_threads)
        device = torch.device(options.device)
        network = Network.from_folder(
            options.folder, device=device, precision=choose_precision(options.dtype, device)
        )
        spec = WhisperAdapter.describe(read_config(options.folder))
        return cls(spec, network, Vocabulary.from_folder(options.folder))

    @property
    def languages(self) -> frozenset[str]:
        """See `Adapter`."""
        return frozenset(self._vocabulary.languages) or frozenset({"en"})

    def detect_language(self, windows: Sequence[Window]) -> list[dict[str, float]]:
        """See `Adapter`."""
        with torch.inference_mode(), _translated_memory_errors(len(windows)):
            return self._hearing.detect_language(windows)

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        """See `Adapter`."""
        for window in windows:
            self._check(window)
        with torch.inference_mode(), _translated_memory_errors(len(windows)):
            return self._recognise(windows)

    def transcribe_stream(self, windows: Sequence[Window], sink: DeltaSink) -> list[Hypothesis]:
        """See `DeltaTranscriber`.

        A window that is tried again after some of its text was told begins with that again. What
        is read in halves may read otherwise; it then gives no more pieces.
        """
        voices = [
            Voice(
                self._vocabulary.decode,
                Marks(timestamp_begin=self._vocabulary.timestamp_begin, end=self._vocabulary.end),
                prompt=window.prompt,
                tell=partial(sink, number),
            )
            for number, window in enumerate(windows)
        ]
        for window in windows:
            self._check(window)
        with torch.inference_mode(), _translated_memory_errors(len(windows)):
            hypotheses = self._recognise(windows, voices)
        for voice, hypothesis in zip(voices, hypotheses, strict=True):
            voice.finish(hypothesis.text)
        return hypotheses

    def close(self) -> None:
        """See `Adapter`."""
        del self._ladder, self._word_timer, self._hearing, self._network
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _check(self, window: Window) -> None:
        if len(window.samples) > WINDOW_SAMPLES:
            raise errors.AdapterFailure(f"A window of {window.duration_ms} ms is longer than 30 s.")
        if window.language is not None and window.language not in self.languages:
            raise errors.UnknownLanguage(
                f"This checkpoint does not know the language {window.language!r}.", param="language"
            )
        if window.task is TaskKind.TRANSLATE and not self.spec.supports_translate:
            raise errors.InvalidOption("This checkpoint cannot translate.", param="task")

    def _recognise(
        self, windows: Sequence[Window], voices: Sequence[Voice] = ()
    ) -> list[Hypothesis]:
        """Transcribe a batch of windows; `voices`, if any, tell their text meanwhile."""
        numbers = [n for n, window in enumerate(windows) if is_audible(window.samples)]
        attempts = self._hearing.begin([windows[n] for n in numbers]) if numbers else []
        if voices:
            for number, attempt in zip(numbers, attempts, strict=True):
                attempt.voice = voices[number]
        heard = iter(self._hear(attempts) if attempts else ())
        return [
            next(heard) if is_audible(window.samples) else Hypothesis(language=window.language)
            for window in windows
        ]

    def _hear(self, attempts: Sequence[Attempt]) -> list[Hypothesis]:
        """Decode a batch, and then what its answers left to be read again."""
        self._ladder.climb(attempts)
        answers: list[Hypothesis] = []
        rests: dict[int, Rest] = {}
        for number, attempt in enumerate(attempts):
            answer, rest = self._conclude(attempt)
            answers.append(answer)
            if rest is not None:
                rests[number] = rest
        if rests:
            begun = self._hearing.begin_rests([(attempts[n], r) for n, r in rests.items()])
            more = self._hear(begun)
            for (number, rest), hypothesis in zip(rests.items(), more, strict=True):
                answers[number] = append(answers[number], hypothesis, offset_ms=rest.start_ms)
        return answers

    def _conclude(self, attempt: Attempt) -> tuple[Hypothesis, Rest | None]:
        """Return what a window says, and what of it is to be read again."""
        best = attempt.find_best()
        if best is None:
            return self._transcribe_halves(attempt), None
        is_doubtful = (
            best.verdict is not Verdict.GOOD or best.scores.no_speech_prob > MAX_NO_SPEECH_PROB
        )
        if best.verdict is Verdict.SILENCE or (attempt.is_unheard and is_doubtful):
            if not attempt.is_unheard:
                return Hypothesis(language=attempt.language), None
            return self._hear_in_other_languages(attempt), None
        tokens, resume_ms = split_unfinished(
            best.answer.tokens, timestamp_begin=self._vocabulary.timestamp_begin
        )
        segments = self._segments(attempt, best, tokens)
        if attempt.window.timestamps is Timestamps.WORD:
            segments = self._word_timer.time(
                segments,
                attempt.encoded,
                language=attempt.language,
                task=attempt.window.task,
                duration_ms=attempt.window.duration_ms,
                until_ms=resume_ms,
            )
        answer = Hypothesis(segments=segments, language=attempt.language)
        return answer, find_rest(
            answer,
            resume_ms,
            heard_until_ms=attempt.heard_until_ms,
            duration_ms=attempt.window.duration_ms,
        )

    def _hear_in_other_languages(self, rest: Attempt) -> Hypothesis:
        """Return what is said in a rest that makes no sense in its window's language."""
        answer = Hypothesis(language=rest.language)
        begun = self._hearing.begin_in_other_languages(rest) if rest.is_language_open else []
        parts = [(start_ms, attempt) for start_ms, attempt in begun if attempt is not None]
        heard = self._hear([attempt for _, attempt in parts]) if parts else []
        for (start_ms, _), hypothesis in zip(parts, heard, strict=True):
            answer = append(answer, hypothesis, offset_ms=start_ms)
        if not parts or len(parts) < len(begun):
            answer = append(answer, Hypothesis(warnings=(PART_NOT_UNDERSTOOD,)), offset_ms=0)
        return answer

    def _transcribe_halves(self, attempt: Attempt) -> Hypothesis:
        """Transcribe a window whose text does not fit the decoder's context in two parts."""
        window = attempt.window
        parts = split_samples(window.samples)
        if parts is None:
            raise errors.TokenLimitReached(
                f"Window {window.key} did not end within the decoder's context."
            )
        log.warning(
            "window.split", key=window.key, verdict=attempt.outcomes[-1].verdict.name.lower()
        )
        left, right = self._recognise(
            [replace(window, samples=part, language=attempt.language) for part in parts]
        )
        return append(left, right, offset_ms=samples_to_ms(len(parts[0])))

    def _segments(
        self, attempt: Attempt, best: Outcome, tokens: Sequence[int]
    ) -> tuple[Segment, ...]:
        spans = cut_spans(
            tokens,
            timestamp_begin=self._vocabulary.timestamp_begin,
            end=self._vocabulary.end,
            duration_ms=attempt.window.duration_ms,
        )
        texts = [self._vocabulary.decode(span.tokens).strip() for span in spans]
        ratio = compression_ratio(self._vocabulary.decode(best.answer.tokens).strip())
        logprobs = self._logprobs(attempt, best, spans)
        segments = [
            Segment(
                text=text,
                start_ms=span.start_ms,
                end_ms=span.end_ms,
                tokens=span.tokens,
                token_logprobs=spelt,
                avg_logprob=best.scores.avg_logprob,
                no_speech_prob=best.scores.no_speech_prob,
                compression_ratio=ratio,
                temperature=best.trial.temperature,
                language=attempt.language,
            )
            for span, text, spelt in zip(spans, texts, logprobs, strict=True)
            if text
        ]
        return tuple(segments)

    def _logprobs(
        self, attempt: Attempt, best: Outcome, spans: Sequence[Span]
    ) -> list[tuple[TokenLogprob, ...]]:
        """Return each span's tokens with their log probabilities, if they are wanted."""
        if not attempt.window.with_logprobs:
            return [()] * len(spans)
        answer = best.answer
        of_text = iter(
            logprob
            for token, logprob in zip(answer.tokens, answer.logprobs, strict=True)
            if token < self._vocabulary.end
        )
        return [
            self._vocabulary.spell(span.tokens, list(islice(of_text, len(span.tokens))))
            for span in spans
        ]


@contextmanager
def _translated_memory_errors(num_windows: int) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as exc:
        torch.cuda.empty_cache()
        raise errors.DeviceOutOfMemory(f"{num_windows} windows do not fit: {exc}") from exc
