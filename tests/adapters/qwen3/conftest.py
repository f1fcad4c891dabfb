"""The tiny trained checkpoints, a random one, and clips of synthetic speech."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from adapters.base import LoadOptions, Samples, Window
from adapters.qwen3_asr.adapter import Qwen3ASRAdapter
from tests.adapters.qwen3.random_checkpoint import write_random_checkpoint

DATA = Path(__file__).parents[2] / "data"
ASR = DATA / "checkpoints" / "tiny-qwen3-asr"
ALIGNER = DATA / "checkpoints" / "tiny-qwen3-aligner"
CLIPS = DATA / "clips" / "qwen3"


@dataclass(frozen=True)
class Clip:
    file: str
    language: str | None
    text: str
    samples: Samples
    word_starts_ms: tuple[int, ...]

    def window(self, **options) -> Window:
        return Window(key=self.file, samples=self.samples, **options)


def _load_clips() -> dict[str, Clip]:
    codes = {"English": "en", "Chinese": "zh", None: None}
    clips = {}
    for line in (CLIPS / "manifest.jsonl").read_text().splitlines():
        row = json.loads(line)
        samples, _ = soundfile.read(CLIPS / row["file"], dtype="float32")
        starts = tuple(round(word["start"] * 1000) for word in row["words"])
        clips[row["file"][:2]] = Clip(
            row["file"], codes[row["language"]], row["text"], samples, starts
        )
    return clips


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def clips() -> dict[str, Clip]:
    """The clips by the number their file begins with."""
    return _load_clips()


@pytest.fixture(scope="session")
def asr() -> Qwen3ASRAdapter:
    """The tiny checkpoint without an aligner."""
    return Qwen3ASRAdapter.load(LoadOptions(folder=ASR))


@pytest.fixture(scope="session")
def asr_with_words() -> Qwen3ASRAdapter:
    """The tiny checkpoint with its aligner."""
    return Qwen3ASRAdapter.load(LoadOptions(folder=ASR, extra={"aligner": str(ALIGNER)}))


@pytest.fixture(scope="session")
def random_asr(tmp_path_factory: pytest.TempPathFactory) -> Qwen3ASRAdapter:
    """A random checkpoint of real geometry."""
    folder = write_random_checkpoint(tmp_path_factory.mktemp("random"), like=ASR, seed=7)
    return Qwen3ASRAdapter.load(LoadOptions(folder=folder))


@pytest.fixture(scope="session")
def make_speech() -> Callable[..., Samples]:
    """Return a maker of speech-like sound: voiced syllables over weak noise, no pauses."""

    def make(seconds: float, *, seed: int = 0, louder_from_s: float | None = None) -> Samples:
        rng = np.random.default_rng(seed)
        at = np.arange(int(seconds * 16_000)) / 16_000
        pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * (0.5 + seed / 9) * at)) / 16_000
        voice = sum(np.sin(k * pitch) / k for k in range(1, 20))
        syllables = 0.15 + np.clip(np.sin(2 * np.pi * 3.1 * at), 0, None)
        wave = 0.03 * voice * syllables + 2e-4 * rng.standard_normal(len(at))
        if louder_from_s is not None:
            wave[int(louder_from_s * 16_000) :] *= 12
        return np.clip(wave, -1, 1).astype(np.float32)

    return make
