from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from core.audio.decode import open_media
from core.audio.media import DecodeLimits, MediaInfo
from core.options import Channels


class Blocks:
    """Decoded samples, shape (num_channels, n), as a stream of blocks of any size."""

    info = MediaInfo(
        codec="pcm_f32le",
        container="wav",
        sample_rate_hz=16_000,
        num_channels=1,
        num_tracks=1,
        track_index=0,
        start_ms=0,
    )
    warnings = ()

    def __init__(self, samples: np.ndarray, size: int = 16_000) -> None:
        self._samples, self._size = samples, size
        self.num_channels, self.num_samples = samples.shape

    def __iter__(self) -> Iterator[np.ndarray]:
        for first in range(0, self.num_samples, self._size):
            yield self._samples[:, first : first + self._size]


Decoded = tuple[np.ndarray, MediaInfo, tuple[str, ...]]
Decode = Callable[..., Decoded]


@pytest.fixture
def decode() -> Decode:
    """Return a function that decodes a whole file: samples (num_channels, n), info, warnings."""

    def run(path: Path, channels: Channels = Channels.MIX, **limits: int) -> Decoded:
        with open_media(path, limits=DecodeLimits(**limits), channels=channels) as stream:
            blocks = [np.empty((stream.num_channels, 0), np.float32), *stream]
            return np.concatenate(blocks, axis=1), stream.info, stream.warnings

    return run
