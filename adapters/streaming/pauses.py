"""Where an utterance may end, judged by level alone while the audio comes in. No torch.

A cut only has to fall where nobody speaks; whether somebody spoke is the model's to say. So a
level meter is enough, and a caller with a better detector ends utterances itself
(`StreamSession.end_utterance`).
"""

from collections.abc import Sequence

import numpy as np

from adapters.base import Samples
from core.transcript import SAMPLE_RATE_HZ

FRAME_MS = 20
FRAME = SAMPLE_RATE_HZ * FRAME_MS // 1000
"""Samples of one level reading."""

SILENCE_DB = -65.0
"""RMS below this, in dB of full scale, is silence whatever surrounds it."""
_ABOVE_FLOOR_DB = 8.0
_BELOW_PEAK_DB = 38.0
_FLOOR_RISE_DB = 0.06  # a frame: 3 dB/s, so that the floor follows a rising background
_PEAK_FALL_DB = 0.1  # a frame: 5 dB/s

_GAP_FRAMES = 8
"""160 ms: a gap between words, not the closure of a consonant."""


def measure_levels(samples: Samples) -> list[float]:
    """Return the RMS of every whole frame of `FRAME` samples in dB of full scale."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    power = np.mean(np.square(frames, dtype=np.float64), axis=1)
    levels: list[float] = (10.0 * np.log10(power + 1e-12)).tolist()
    return levels


def find_quietest(levels: Sequence[float]) -> int:
    """Return the frame, never the first, before which a cut does the least harm."""
    length = min(_GAP_FRAMES, len(levels))
    power = np.convolve(np.power(10.0, np.divide(levels, 10.0)), np.ones(length), mode="valid")
    return int(np.argmin(power)) + (length + 1) // 2


class LevelMeter:
    """Tells quiet frames from others, relative to the stream's own background and speech.

    Attributes:
        num_quiet: How many frames up to the last have been quiet without a break.
    """

    def __init__(self) -> None:
        self.num_quiet = 0
        self._floor = 0.0
        self._peak = -120.0

    def read(self, level: float) -> None:
        """Take the level of the next frame."""
        self._floor = min(level, self._floor + _FLOOR_RISE_DB)
        self._peak = max(level, self._peak - _PEAK_FALL_DB)
        self.num_quiet = self.num_quiet + 1 if self._is_quiet(level) else 0

    def _is_quiet(self, level: float) -> bool:
        threshold = max(self._floor + _ABOVE_FLOOR_DB, self._peak - _BELOW_PEAK_DB)
        # A background close to the speech's level leaves no room for a threshold between them.
        return level < max(SILENCE_DB, min(threshold, self._peak - _ABOVE_FLOOR_DB))
