from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.audio.decode import open_media
from core.audio.media import DecodeLimits, MediaInfo
from core.options import Channels

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
