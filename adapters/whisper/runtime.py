"""A loaded Whisper: windows in, hypotheses out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice

import structlog
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from adapters.base import AdapterSpec, LoadOptions, Window
from adapters.streaming.base import DeltaSink
from adapters.text import compression_ratio
from adapters.weights.resolve import read_config
from adapters.whisper.adapter import WhisperAdapter
from adapters.whisper.alignment import WordTimer
from adapters.whisper.decoding import Decoder
from adapters.whisper.encodings import Encodings
from adapters.whisper.fallback import MAX_NO_SPEECH_PROB, Verdict, first_trial
from adapters.whisper.features import FRAME_MS, WINDOW_SAMPLES, LogMel, Padding
from adapters.whisper.ladder import Attempt, Ladder, Outcome
from adapters.whisper.network import Network
from adapters.whisper.precision import choose_precision
from adapters.whisper.segments import (
    Rest,
    Span,
    append,
    cut_spans,
    find_rest,
    split_unfinished,
)
from adapters.whisper.sound import is_audible, loud_until_ms, split_samples
from adapters.whisper.vocabulary import Vocabulary
from adapters.whisper.voice import Marks, Voice
from core import errors
from core.options import TaskKind, Timestamps
from core.transcript import (
    SAMPLE_RATE_HZ,
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
        padding = Padding.SILENCE if network.precision.is_reference else Padding.ZEROS
        self._log_mel = LogMel(network.num_bins, network.device, padding)
        self._encodings = Encodings(network, self._log_mel)

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
            return self._detect(self._encodings.encode(windows))

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        """See `Adapter`."""
        for window in windows:
            self._check(window)
        with torch.inference_mode(), _translated_memory_errors(len(windows)):
            return self._recognise(windows)

    def transcribe_stream(self, windows: Sequence[Window], sink: DeltaSink) -> list[Hypothesis]:
        """See `DeltaTranscriber`.

        A window that is tried again after some of its text was told, and then reads otherwise,
        gives no more pieces.
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
        del self._ladder, self._word_timer, self._encodings, self._network
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
        attempts = self._begin([windows[n] for n in numbers]) if numbers else []
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
            more = self._hear(self._begin_rests([(attempts[n], r) for n, r in rests.items()]))
            for (number, rest), hypothesis in zip(rests.items(), more, strict=True):
                answers[number] = append(answers[number], hypothesis, offset_ms=rest.start_ms)
        return answers

    def _detect(self, encoded: Sequence[torch.Tensor]) -> list[dict[str, float]]:
        """Return the probability of each language, from the decoder's first step."""
        languages = self._vocabulary.languages
        if not languages:
            return [{"en": 1.0} for _ in encoded]
        cache = self._network.make_cache(encoded)
        logits = self._network.prefill(
            cache,
            [(self._vocabulary.start,)] * len(encoded),
            torch.zeros((len(encoded), 1), dtype=torch.long),
        )
        rows = logits[:, 0, list(languages.values())].softmax(dim=-1).tolist()
        return [dict(zip(languages, row, strict=True)) for row in rows]

    def _begin(self, windows: Sequence[Window]) -> list[Attempt]:
        encoded = self._encodings.encode(windows)
        unknown = [number for number, window in enumerate(windows) if window.language is None]
        detected: dict[int, str] = {}
        if unknown:
            for number, odds in zip(
                unknown, self._detect([encoded[n] for n in unknown]), strict=True
            ):
                detected[number] = max(odds, key=odds.__getitem__)
        attempts = []
        for number, window in enumerate(windows):
            prompt = self._vocabulary.encode_prompt(window.prompt)
            attempts.append(
                Attempt(
                    window=window,
                    encoded=encoded[number],
                    language=window.language or detected[number],
                    prompt=prompt,
                    heard_until_ms=loud_until_ms(window.samples),
                    trial=first_trial(window.temperature, has_prompt=bool(prompt)),
                )
            )
        return attempts

    def _begin_rests(self, rests: Sequence[tuple[Attempt, Rest]]) -> list[Attempt]:
        """Begin what is left of windows: later frames of the same features, zeros after them.

        As `transformers` has it; features of the samples alone would be scaled by another maximum.
        """
        features = []
        for attempt, rest in rests:
            whole = attempt.features
            if whole is None:
                whole = self._log_mel(attempt.window.samples)
            first = rest.start_ms // FRAME_MS
            features.append(F.pad(whole[:, first:], (0, first)))
        later = []
        encoded = self._network.encode(features)
        for (attempt, rest), heard, output in zip(rests, features, encoded, strict=True):
            samples = attempt.window.samples[rest.start_ms * SAMPLE_RATE_HZ // 1000 :]
            window = replace(
                attempt.window, samples=samples, language=attempt.language, prompt=None
            )
            later.append(
                Attempt(
                    window=window,
                    encoded=output,
                    language=attempt.language,
                    prompt=(),
                    heard_until_ms=loud_until_ms(samples),
                    trial=first_trial(window.temperature, has_prompt=False),
                    features=heard,
                    is_unheard=rest.is_unheard,
                )
            )
        return later

    def _conclude(self, attempt: Attempt) -> tuple[Hypothesis, Rest | None]:
        """Return what a window says, and what of it is to be read again."""
        best = attempt.find_best()
        if best is None:
            return self._transcribe_halves(attempt), None
        is_doubtful = (
            best.verdict is not Verdict.GOOD or best.scores.no_speech_prob > MAX_NO_SPEECH_PROB
        )
        if best.verdict is Verdict.SILENCE or (attempt.is_unheard and is_doubtful):
            return Hypothesis(language=attempt.language), None
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
            )
        answer = Hypothesis(segments=segments, language=attempt.language)
        return answer, find_rest(
            answer,
            resume_ms,
            heard_until_ms=attempt.heard_until_ms,
            duration_ms=attempt.window.duration_ms,
        )

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
