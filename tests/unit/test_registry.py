"""Which adapter drives which checkpoint."""

import subprocess
import sys

import pytest

from adapters import registry
from adapters.registry import register_transcription_adapter, resolve_adapter


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_families", {})


@pytest.fixture
def families(empty: None) -> tuple[type, type, type]:
    made = tuple(type(name, (), {}) for name in ("Other", "Whisper", "Qwen"))
    register_transcription_adapter("OtherASR")(made[0])
    register_transcription_adapter("Whisper")(made[1])
    register_transcription_adapter("Qwen3ASR")(made[2])
    return made


def test_a_key_inside_an_architecture_chooses_its_adapter(families) -> None:
    assert resolve_adapter(["WhisperForConditionalGeneration"]) is families[1]
    assert resolve_adapter(["Qwen3ASRForConditionalGeneration"]) is families[2]


def test_the_first_registered_key_wins(families) -> None:
    assert resolve_adapter(["Qwen3ASRModel", "OtherASRModel"]) is families[0]


@pytest.mark.parametrize("architectures", [[], ["Wav2Vec2ForCTC"]])
def test_no_match_falls_back_to_whisper(families, architectures: list[str]) -> None:
    assert resolve_adapter(architectures) is families[1]


def test_an_empty_registry_is_an_error(empty: None) -> None:
    with pytest.raises(LookupError):
        resolve_adapter(["WhisperForConditionalGeneration"])


def test_two_adapters_cannot_share_a_key(families) -> None:
    with pytest.raises(ValueError, match="two adapters"):
        register_transcription_adapter("Whisper")(type("Impostor", (), {}))


def test_describing_checkpoints_loads_no_torch() -> None:
    code = "import sys, adapters.loading; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
