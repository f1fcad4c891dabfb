"""What is heard at a few places of a long media, before all of it is decoded."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.audio.decode import read_excerpts
from core.audio.media import DecodeLimits
from core.audio.speech import FRAME_SAMPLES, SpeechDetector
from core.errors import MediaError
from core.transcript import SAMPLE_RATE_HZ

Samples = NDArray[np.float32]

NUM_EXCERPTS = 5
EXCERPT_MS = 10_000
SHORTEST_MEDIA_MS = 4 * 60_000
"""Shorter media is cut into windows in a moment."""

_MIN_SPEAKING = 3
_MIN_SPEECH_FRAMES = 2 * SAMPLE_RATE_HZ // FRAME_SAMPLES
_SPEECH = 0.5


def find_speech(path: Path, limits: DecodeLimits) -> list[Samples]:
    """Return excerpts of the media at `path` in which somebody speaks, spread over its length.

    They depend on the media alone. None if it is short, does not know its length or cannot be
    searched, is broken, or if there is speech in too few of them to stand for all of it.
    """
    try:
        excerpts = read_excerpts(
            path,
            count=NUM_EXCERPTS,
            length_ms=EXCERPT_MS,
            min_media_ms=SHORTEST_MEDIA_MS,
            limits=limits,
        )
    except MediaError:
        return []  # whoever decodes the whole of it says what is wrong
    speaking = [excerpt for excerpt in excerpts if _has_speech(excerpt)]
    return speaking if len(speaking) >= _MIN_SPEAKING else []


def _has_speech(samples: Samples) -> bool:
    detector = SpeechDetector()
    frames = [*detector.feed(samples).probabilities, *detector.finish().probabilities]
    return sum(float(each) > _SPEECH for each in frames) >= _MIN_SPEECH_FRAMES
