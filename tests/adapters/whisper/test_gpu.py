"""On a GPU, as far as one can be had without: every tensor on the device it must be on."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adapters.base import LoadOptions
from adapters.streaming import start_streaming
from adapters.whisper.runtime import WhisperRuntime
from core.options import TaskKind, Timestamps
from tests.support.pretend_gpu import PretendGpu


@pytest.fixture(scope="module")
def gpu_whisper(checkpoint: Path) -> Iterator[WhisperRuntime]:
    with PretendGpu():
        runtime = WhisperRuntime.from_options(LoadOptions(folder=checkpoint, device="cuda"))
        yield runtime
        runtime.close()


def test_windows_are_transcribed_in_half_precision(gpu_whisper, window):
    deltas = []
    windows = [
        window("en", timestamps=Timestamps.WORD, with_logprobs=True, language=None),
        window("sv", timestamps=Timestamps.NONE, prompt="Barnbarn."),
        window("sv", task=TaskKind.TRANSLATE, temperature=0.4),
    ]
    english, swedish, translated = gpu_whisper.transcribe_stream(
        windows, lambda *told: deltas.append(told)
    )
    assert english.language == "en"
    assert "your country" in " ".join(segment.text for segment in english.segments)
    assert english.segments[0].words
    assert swedish.segments
    assert translated.segments
    assert deltas


def test_growing_audio_is_heard(gpu_whisper, speech):
    engine = start_streaming(gpu_whisper)
    session = engine.open(language="en")
    session.push(np.asarray(speech["en"][: 4 * 16_000]))
    session.finish()
    while any(engine.step([session])):
        pass
    assert "my fellow Americans" in session.text
