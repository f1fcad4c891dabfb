"""Where a speaker's turns begin and end in a stream. No threads, no Redis, no model of speech."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from adapters.base import Samples
from core.audio.regions import SpeechRules, SpeechTracker
from core.audio.speech import FRAME_SAMPLES, SpeechDetector
from core.live import TurnRules
from core.transcript import SAMPLE_RATE_HZ, samples_to_ms

FRAME_MS = FRAME_SAMPLES * 1000 // SAMPLE_RATE_HZ
BATCH_FRAMES = 4
"""Frames judged at once: 128 ms, the delay that detection adds."""

MIN_SPEECH_MS = 128
"""Sound that is no surer speech than `threshold` begins a turn once it is this long."""
_SURE = 0.9
_HYSTERESIS = 0.15
"""How far below `threshold` speech goes on.

Source: silero-vad 6.2.3, utils_vad.py, `neg_threshold`."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn begins; `at_ms` is where its audio does, in the session."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Heard:
    """Audio of the open turn."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Ended:
    """The open turn has all its audio; `at_ms` is where it ends in the session."""

    at_ms: int


TurnEvent = Begun | Heard | Ended


class TurnTaker(Protocol):
    """Cuts a stream into turns."""

    @property
    def is_open(self) -> bool:
        """Whether a turn has begun and not ended."""
        ...

    def feed(self, samples: Samples) -> Iterator[TurnEvent]:
        """Take more audio, shape (n,), 16 kHz."""
        ...

    def end(self) -> Iterator[TurnEvent]:
        """End the open turn here; nothing comes if there is none."""
        ...


class ClientTurns:
    """The client says where turns end; each begins with the first sample after the last."""

    def __init__(self, position: int) -> None:
        """Begin at sample `position` of the session."""
        self._position = position
        self.is_open = False

    def feed(self, samples: Samples) -> Iterator[TurnEvent]:
        """See `TurnTaker`."""
        if not len(samples):
            return
        if not self.is_open:
            self.is_open = True
            yield Begun(samples_to_ms(self._position))
        self._position += len(samples)
        yield Heard(samples)

    def end(self) -> Iterator[TurnEvent]:
        """See `TurnTaker`."""
        if self.is_open:
            self.is_open = False
            yield Ended(samples_to_ms(self._position))


class DetectedTurns:
    """Turns begin with speech and end with a pause; silence between them is left out.

    A turn is `[speech - padding, end of speech + silence)`: what ended it is part of it.
    """

    def __init__(self, rules: TurnRules, position: int) -> None:
        """Begin at sample `position` of the session."""
        self._tracker = SpeechTracker(
            SpeechRules(
                on=rules.threshold,
                off=max(rules.threshold - _HYSTERESIS, 0.01),
                min_silence=max(1, rules.silence_ms // FRAME_MS),
                min_speech=MIN_SPEECH_MS // FRAME_MS,
                sure=max(_SURE, rules.threshold),
            )
        )
        self._detector = SpeechDetector(batch_frames=BATCH_FRAMES)
        self._padding = rules.prefix_padding_ms * SAMPLE_RATE_HZ // 1000
        self._base = position  # of the detector's first frame
        # Audio that may still become part of a turn: the padding, and what is not believed yet.
        self._recent: Samples = np.zeros(0, np.float32)
        self._recent_at = position
        self.is_open = False

    def feed(self, samples: Samples) -> Iterator[TurnEvent]:
        """See `TurnTaker`."""
        self._recent = np.concatenate((self._recent, samples))
        for probability in self._detector.feed(samples).probabilities:
            yield from self._judge(float(probability))
        if self.is_open:
            yield from self._give(self._base + self._tracker.num_frames * FRAME_SAMPLES)
        else:
            self._forget()

    def end(self) -> Iterator[TurnEvent]:
        """See `TurnTaker`; speech that was too short to be believed yet counts."""
        region = self._tracker.region
        end = self._recent_at + len(self._recent)
        if not self.is_open and region is not None:
            yield self._begin(region.start)
        if self.is_open:
            yield from self._give(end)
            self.is_open = False
            yield Ended(samples_to_ms(end))
        self._tracker.forget()
        self._forget()

    def _judge(self, probability: float) -> Iterator[TurnEvent]:
        region = self._tracker.push(probability)
        if not self.is_open and region is not None and self._tracker.region is region:
            yield self._begin(region.start)
        elif self.is_open and self._tracker.region is None:
            end = self._base + self._tracker.num_frames * FRAME_SAMPLES
            yield from self._give(end)
            self.is_open = False
            yield Ended(samples_to_ms(max(end, self._recent_at)))

    def _begin(self, frame: int) -> Begun:
        start = max(self._recent_at, self._base + frame * FRAME_SAMPLES - self._padding)
        self._recent = self._recent[start - self._recent_at :]
        self._recent_at = start
        self.is_open = True
        return Begun(samples_to_ms(start))

    def _give(self, end: int) -> Iterator[TurnEvent]:
        num_samples = end - self._recent_at
        if num_samples > 0:
            yield Heard(self._recent[:num_samples])
            self._recent = self._recent[num_samples:]
            self._recent_at = end

    def _forget(self) -> None:
        """Drop audio that no turn can reach back to."""
        region = self._tracker.region
        frame = self._tracker.num_frames if region is None else region.start
        start = self._base + frame * FRAME_SAMPLES - self._padding
        if start > self._recent_at:
            self._recent = self._recent[start - self._recent_at :]
            self._recent_at = start
