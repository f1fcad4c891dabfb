"""English-only, multilingual and large-v3 checkpoints differ in ids, languages and mel bins."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from adapters.base import LoadOptions, Window
from adapters.loading import get_spec
from adapters.whisper.runtime import WhisperRuntime
from core import errors
from core.options import TaskKind, Timestamps
from tests.adapters.whisper.random_checkpoint import write_random_checkpoint

Loader = Callable[[str], WhisperRuntime]


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    def make(kind: str) -> WhisperRuntime:
        torch.manual_seed(1)
        write_random_checkpoint(tmp_path, kind=kind)
        return WhisperRuntime.from_options(LoadOptions(folder=tmp_path, dtype="float32"))

    return make


def noise(seconds: float = 3.0, **options: object) -> Window:
    samples = np.random.default_rng(0).normal(scale=0.1, size=int(seconds * 16_000))
    return Window(**{"key": "noise", "samples": samples.astype(np.float32), **options})


@pytest.mark.parametrize("kind", ["english", "multilingual", "large-v3"])
def test_timestamps_start_where_the_checkpoint_says(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(1)
    first = write_random_checkpoint(tmp_path, kind=kind)

    whisper = WhisperRuntime.from_options(LoadOptions(folder=tmp_path, dtype="float32"))

    assert whisper._vocabulary.timestamp_begin == first


def test_an_english_only_checkpoint_takes_no_language_or_task_token(load: Loader) -> None:
    whisper = load("english")
    vocabulary = whisper._vocabulary

    assert whisper.languages == {"en"}
    assert vocabulary.prefix("en", TaskKind.TRANSCRIBE, with_timestamps=True) == (vocabulary.start,)
    assert whisper.detect_language([noise()]) == [{"en": 1.0}]
    with pytest.raises(errors.InvalidOption):
        whisper.transcribe([noise(task=TaskKind.TRANSLATE)])
    with pytest.raises(errors.UnknownLanguage):
        whisper.transcribe([noise(language="de")])


def test_unusual_language_codes_have_their_tokens(load: Loader) -> None:
    large = load("large-v3")
    tokenizer = large._vocabulary.tokenizer

    for code in ("yue", "haw", "jw"):
        prefix = large._vocabulary.prefix(code, TaskKind.TRANSCRIBE, with_timestamps=True)
        assert tokenizer.id_to_token(prefix[1]) == f"<|{code}|>"


def test_only_large_v3_knows_cantonese(load: Loader) -> None:
    whisper = load("multilingual")

    assert "haw" in whisper.languages
    assert "yue" not in whisper.languages
    with pytest.raises(errors.UnknownLanguage):
        whisper.transcribe([noise(language="yue")])


def test_the_language_odds_sum_to_one(load: Loader) -> None:
    [odds] = load("large-v3").detect_language([noise()])

    assert set(odds) == load("large-v3").languages
    assert sum(odds.values()) == pytest.approx(1.0, abs=1e-5)


def test_a_text_that_never_ends_is_an_error_and_not_cut_off(
    load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    whisper = load("multilingual")
    # Forbid the end: every answer runs into the context's end.
    whisper._ladder.decoder._rules._suppress = torch.tensor([whisper._vocabulary.end])

    with pytest.raises(errors.TokenLimitReached):
        whisper.transcribe([noise(language="en", timestamps=Timestamps.NONE)])


def test_a_window_longer_than_thirty_seconds_is_refused(load: Loader) -> None:
    with pytest.raises(errors.AdapterFailure):
        load("multilingual").transcribe([noise(30.1, language="en")])


def test_the_spec_is_read_from_the_config_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures": ["WhisperForConditionalGeneration"], "vocab_size": 51864}'
    )
    spec = get_spec(tmp_path)

    assert (spec.name, spec.window_ms, spec.padded_ms) == ("whisper", 30_000, 30_000)
    assert not spec.supports_translate
    assert not spec.detects_by_vote


def test_what_is_no_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointInvalid, match=r"config\.json"):
        get_spec(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": [], "vocab_size": 51865}')
    with pytest.raises(errors.CheckpointInvalid):
        WhisperRuntime.from_options(LoadOptions(folder=tmp_path))


def test_int8_is_refused_off_the_cpu(tmp_path: Path) -> None:
    write_random_checkpoint(tmp_path, kind="english")
    options = LoadOptions(folder=tmp_path, device="meta", dtype="int8")

    with pytest.raises(errors.CheckpointInvalid, match="CPU"):
        WhisperRuntime.from_options(options)
    with pytest.raises(errors.CheckpointInvalid, match="number format"):
        WhisperRuntime.from_options(replace(options, device="cpu", dtype="int3"))
