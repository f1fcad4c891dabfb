"""What comes before a window's text is decoded: its encoding, and its language if none is given."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from adapters.base import Window
from adapters.whisper.encodings import Encodings
from adapters.whisper.fallback import first_trial
from adapters.whisper.features import FRAME_MS, LogMel, Padding, count_frames
from adapters.whisper.ladder import Attempt
from adapters.whisper.network import Network, Precision
from adapters.whisper.segments import Rest
from adapters.whisper.sound import loud_until_ms, split_at_pauses
from adapters.whisper.vocabulary import Vocabulary
from core.transcript import SAMPLE_RATE_HZ, samples_to_ms

LEAST_ODDS = 0.5
"""Of a language that a part alone is in: more likely than all others together."""


def _choose_padding(precision: Precision) -> Padding:
    if precision.int8:
        return Padding.SHORT
    return Padding.SILENCE if precision.is_reference else Padding.ZEROS


class Hearing:
    """Begins the attempts that a `Ladder` climbs."""

    def __init__(self, network: Network, vocabulary: Vocabulary) -> None:
        self._network = network
        self._vocabulary = vocabulary
        self._log_mel = LogMel(network.num_bins, network.device, _choose_padding(network.precision))
        self._encodings = Encodings(network, self._log_mel)

    def detect_language(self, windows: Sequence[Window]) -> list[dict[str, float]]:
        """Return for each window the probability of every language."""
        return self._detect(self._encodings.encode(windows))

    def begin(self, windows: Sequence[Window]) -> list[Attempt]:
        """Encode windows, and hear the language of those that name none."""
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
                _begin(
                    window,
                    encoded[number],
                    window.language or detected[number],
                    prompt=prompt,
                    is_language_open=window.language is None or window.is_language_voted,
                )
            )
        return attempts

    def begin_rests(self, rests: Sequence[tuple[Attempt, Rest]]) -> list[Attempt]:
        """Begin what is left of windows: later frames of the same features, zeros after them.

        As `transformers` has it; features of the samples alone would be scaled by another maximum.
        """
        features, samples = [], []
        for attempt, rest in rests:
            whole = attempt.features
            if whole is None:
                whole = self._log_mel(attempt.window.samples)
            first = rest.start_ms // FRAME_MS
            samples.append(attempt.window.samples[rest.start_ms * SAMPLE_RATE_HZ // 1000 :])
            num_frames = count_frames(len(samples[-1]), self._log_mel.padding)
            features.append(F.pad(whole[:, first:], (0, num_frames))[:, :num_frames])
        later = []
        encoded = self._network.encode(features)
        for (attempt, rest), left, heard, output in zip(
            rests, samples, features, encoded, strict=True
        ):
            window = replace(attempt.window, samples=left, language=attempt.language, prompt=None)
            later.append(
                _begin(
                    window,
                    output,
                    attempt.language,
                    features=heard,
                    is_unheard=rest.is_unheard,
                    is_language_open=attempt.is_language_open,
                )
            )
        return later

    def begin_in_other_languages(self, rest: Attempt) -> list[tuple[int, Attempt | None]]:
        """Begin the parts of a rest that sound like another language than its window's.

        Returns:
            Where each part starts in the rest, in milliseconds, and its attempt; None for a part
            that is in no language for sure, or in the window's.
        """
        parts = split_at_pauses(rest.window.samples)
        windows = [replace(rest.window, samples=samples, language=None) for _, samples in parts]
        encoded = self._encodings.encode(windows)
        begun: list[tuple[int, Attempt | None]] = []
        for (first, _), window, output, odds in zip(
            parts, windows, encoded, self._detect(encoded), strict=True
        ):
            language = max(odds, key=odds.__getitem__)
            attempt = None
            if language != rest.language and odds[language] >= LEAST_ODDS:
                heard = replace(window, language=language)
                attempt = _begin(heard, output, language, is_unheard=True)
            begun.append((samples_to_ms(first), attempt))
        return begun

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


def _begin(
    window: Window,
    encoded: torch.Tensor,
    language: str | None,
    *,
    prompt: tuple[int, ...] = (),
    features: torch.Tensor | None = None,
    is_unheard: bool = False,
    is_language_open: bool = False,
) -> Attempt:
    """Return an attempt before its first trial; see `Attempt`."""
    return Attempt(
        window=window,
        encoded=encoded,
        language=language,
        prompt=prompt,
        heard_until_ms=loud_until_ms(window.samples),
        trial=first_trial(window.temperature, has_prompt=bool(prompt)),
        features=features,
        is_unheard=is_unheard,
        is_language_open=is_language_open,
    )
