"""The default checkpoint, and windows of real speech from the repo's samples."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from adapters.base import LoadOptions, Window
from adapters.weights.default import fetch_default
from adapters.whisper.runtime import WhisperRuntime
from core.settings import Settings

SAMPLES = Path(__file__).parents[3] / "samples"
CLIPS = {
    "en": "en_kennedy.flac",
    "es": "es_persuasion.ogg",
    "it": "it_asterisk.mp3",
    "ja": "ja_red_fox.flac",
    "sv": "sv_grandchildren.flac",
}

WindowFactory = Callable[..., Window]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Results must not depend on how sums are spread over threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The default checkpoint; `make setup` has fetched it, else this does."""
    return fetch_default(Settings().data_path)


@pytest.fixture(scope="session")
def whisper(checkpoint: Path) -> WhisperRuntime:
    """The default checkpoint in float32."""
    return WhisperRuntime.from_options(LoadOptions(folder=checkpoint, dtype="float32"))


@pytest.fixture(scope="session")
def speech() -> dict[str, np.ndarray]:
    """Samples by language."""
    return {
        language: soundfile.read(SAMPLES / name, dtype="float32")[0]
        for language, name in CLIPS.items()
    }


@pytest.fixture
def window(speech: dict[str, np.ndarray]) -> WindowFactory:
    """Return a factory of windows: `window("en", prompt="…")`."""

    def make(clip: str, **options: object) -> Window:
        options = {"key": clip, "language": clip, "samples": speech[clip], **options}
        return Window(**options)

    return make
