"""The adapter of docs/adding-an-adapter.md, word for word, through the pipeline."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile
import torch
from transformers import (
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    Wav2Vec2Processor,
)

from adapters import registry
from adapters.base import LoadOptions, Window
from adapters.loading import get_spec, load_adapter
from core.db import make_engine, make_sessions, read_session
from core.errors import CheckpointInvalid
from core.options import Timestamps, TranscribeOptions
from core.settings import Settings
from lifecycle.transcripts import load_transcript
from models import Job, JobStatus
from tests.integration.workers.conftest import make_pipeline
from tests.support.pages import find_block
from tests.support.pipeline import wav
from workers.catalog import FolderCatalog
from workers.engine import Engine

ROOT = Path(__file__).resolve().parents[2]
KENNEDY = ROOT / "samples" / "en_kennedy.flac"


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page's module, registered for this test only."""
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    module = ModuleType("adapters.wav2vec2.adapter")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    code = find_block(ROOT / "docs" / "adding-an-adapter.md", "python adapter")
    exec(compile(code, "docs/adding-an-adapter.md", "exec"), module.__dict__)  # noqa: S102
    return module


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint with random weights that writes letters and spaces."""
    folder = tmp_path_factory.mktemp("wav2vec2")
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghij"]
    vocabulary = folder / "vocabulary.json"
    vocabulary.write_text(json.dumps({letter: index for index, letter in enumerate(letters)}))
    torch.manual_seed(3)
    config = Wav2Vec2Config(
        vocab_size=len(letters),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(16,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        pad_token_id=0,
    )
    model = Wav2Vec2ForCTC(config).eval()
    with torch.no_grad():  # random weights would say the same everywhere
        model.lm_head.weight *= 60
    model.save_pretrained(folder)
    tokenizer = Wav2Vec2CTCTokenizer(str(vocabulary))
    extractor = Wav2Vec2FeatureExtractor(sampling_rate=16_000)
    Wav2Vec2Processor(extractor, tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    samples, _ = soundfile.read(KENNEDY, dtype="float32")
    return samples


def reference(checkpoint: Path, samples: np.ndarray) -> str:
    """What `transformers` alone makes of it."""
    model = Wav2Vec2ForCTC.from_pretrained(checkpoint).eval()
    processor = Wav2Vec2Processor.from_pretrained(checkpoint)
    values = processor(samples, sampling_rate=16_000, return_tensors="pt").input_values
    with torch.inference_mode():
        return str(processor.batch_decode(model(values).logits.argmax(-1))[0])


def test_the_guides_adapter_says_what_the_reference_says_alone_and_in_a_batch(
    guide: ModuleType, checkpoint: Path, speech: np.ndarray
):
    assert get_spec(checkpoint).name == "wav2vec2"
    adapter = load_adapter(LoadOptions(folder=checkpoint))
    windows = [
        Window(key=str(end), samples=speech[: end * 16_000], timestamps=Timestamps.WORD)
        for end in (3, 7, 11)
    ]
    together = adapter.transcribe(windows)
    for window, answer in zip(windows, together, strict=True):
        assert adapter.transcribe([window]) == [answer]
        [segment] = answer.segments
        assert segment.text == reference(checkpoint, window.samples)
        assert " ".join(word.text for word in segment.words) == segment.text
        assert 0 <= segment.start_ms < segment.end_ms <= window.duration_ms
    assert len({answer.segments[0].text for answer in together}) == 3
    [silence] = adapter.transcribe([Window(key="", samples=np.zeros(16_000, np.float32))])
    assert silence.language == "en"
    adapter.close()


def test_the_guides_adapter_serves_jobs(
    guide: ModuleType, checkpoint: Path, speech: np.ndarray, sqlite_url: str, tmp_path: Path
):
    settings = Settings(data_dir=tmp_path, models=f"mine={checkpoint}", device="cpu", threads=1)
    engine = make_engine(sqlite_url)
    pipeline = make_pipeline(make_sessions(engine), tmp_path)
    context = replace(pipeline.context, settings=settings, catalog=FolderCatalog(settings))
    pipeline = replace(
        pipeline,
        context=context,
        engine=Engine(context, adapter="wav2vec2", models=["mine"], name="test"),
    )
    job_id = pipeline.submit(
        wav(speech), model="mine", options=TranscribeOptions(vad=False, timestamps="word")
    )
    pipeline.run()
    with read_session(context.sessions) as session:
        job = session.get_one(Job, job_id)
        assert job.status == JobStatus.COMPLETED, job.error_message
        transcript = load_transcript(session, job)
    assert transcript.text == reference(checkpoint, speech)
    assert transcript.language == "en"
    assert all(segment.words for segment in transcript.segments)
    engine.dispose()


def test_a_folder_without_weights_is_refused_by_name(guide: ModuleType, tmp_path: Path):
    (tmp_path / "config.json").write_text('{"architectures": ["Wav2Vec2ForCTC"]}')
    with pytest.raises(CheckpointInvalid, match=str(tmp_path)):
        load_adapter(LoadOptions(folder=tmp_path))
