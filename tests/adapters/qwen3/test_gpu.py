"""On a GPU, as far as one can be had without: every tensor on the device it must be on."""

from collections.abc import Iterator

import pytest
import torch

from adapters.base import LoadOptions
from adapters.qwen3_asr.adapter import Qwen3ASRAdapter
from adapters.streaming import start_streaming
from core.options import Timestamps
from tests.adapters.qwen3.conftest import ALIGNER, ASR
from tests.support.pretend_gpu import DEVICE, PretendGpu

STEP = 32_000


@pytest.fixture(scope="module")
def gpu_asr() -> Iterator[Qwen3ASRAdapter]:
    with PretendGpu():
        adapter = Qwen3ASRAdapter.load(
            LoadOptions(folder=ASR, device="cuda", extra={"aligner": str(ALIGNER)})
        )
        yield adapter
        adapter.close()


def test_what_a_gpu_refuses_is_refused():
    with PretendGpu():
        there, here = torch.ones(2, 3).to("cuda"), torch.ones(2, 3)
        assert there.device == DEVICE
        assert (there + there).sum().item() == 12
        for mistake in (
            lambda: there + here,
            lambda: torch.cat([there, here]),
            lambda: torch.nn.functional.linear(there, here),
            there.numpy,
        ):
            with pytest.raises((RuntimeError, TypeError), match="device"):
                mistake()


def test_windows_are_transcribed_with_words_and_languages(gpu_asr, clips):
    heard = [clips["01"], clips["11"], clips["21"]]
    windows = [
        clip.window(timestamps=Timestamps.WORD, with_logprobs=True, temperature=temperature)
        for clip, temperature in zip(heard, (None, None, 0.5), strict=True)
    ]
    answers = gpu_asr.transcribe(windows)
    assert [" ".join(s.text for s in answer.segments) for answer in answers] == [
        clip.text for clip in heard
    ]
    assert all(answer.segments[0].words for answer in answers[:2])
    told = gpu_asr.detect_language(windows[:2])
    assert [max(scores, key=scores.__getitem__) for scores in told] == ["en", "zh"]


def test_streams_are_heard_together(gpu_asr, clips):
    engine = start_streaming(gpu_asr)
    heard = [clips["03"], clips["11"]]
    sessions = [engine.open(), engine.open(language="zh")]
    for session, clip in zip(sessions, heard, strict=True):
        session.push(clip.samples)
        session.finish()
    while any(engine.step(sessions)):
        pass
    assert [session.text for session in sessions] == [clip.text for clip in heard]
