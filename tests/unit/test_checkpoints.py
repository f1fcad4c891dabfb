"""Which models the settings serve, and under which names."""

from pathlib import Path

import pytest

from core import errors
from core.checkpoints import (
    ServedModel,
    aligner_model,
    default_model,
    find_model,
    get_model,
    parse_models,
)
from core.settings import Settings


def test_the_default_setting_serves_the_default_checkpoint() -> None:
    model = default_model(Settings())

    assert model.name == "whisper-base"
    assert model.is_default_checkpoint


def test_a_known_name_needs_no_source() -> None:
    [model] = parse_models("whisper-large-v3-turbo")
    assert model == ServedModel(
        name="whisper-large-v3-turbo", source="openai/whisper-large-v3-turbo"
    )


def test_a_hub_id_may_have_a_name_and_a_revision() -> None:
    first, second = parse_models("mine=acme/whisper-fr@v1.2, acme/other")

    assert first == ServedModel(name="mine", source="acme/whisper-fr", revision="v1.2")
    assert second == ServedModel(name="other", source="acme/other")


def test_another_revision_of_the_default_is_not_the_default_checkpoint() -> None:
    assert not parse_models("a=openai/whisper-base@main")[0].is_default_checkpoint


def test_a_folder_is_served_under_its_own_name(tmp_path: Path) -> None:
    folder = tmp_path / "my-model@home"
    folder.mkdir()

    [model] = parse_models(str(folder))

    assert (model.name, model.folder, model.revision) == ("my-model@home", folder, None)


@pytest.mark.parametrize("text", ["", " , ", "=x/y", "name=", "nonsense", "a=x/y,a=x/z"])
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(errors.CheckpointInvalid):
        parse_models(text)


def test_the_first_model_is_the_default_and_an_unknown_one_lists_what_there_is() -> None:
    settings = Settings(models="whisper-tiny,whisper-small")

    assert get_model(settings, None).name == "whisper-tiny"
    assert find_model(settings, "whisper-large") is None
    with pytest.raises(errors.UnknownModel, match="whisper-tiny, whisper-small") as caught:
        get_model(settings, "whisper-large")
    assert caught.value.param == "model"


def test_the_aligner_is_named_like_a_model(settings, tmp_path) -> None:
    assert aligner_model(settings()) is None
    known = aligner_model(settings(aligner="qwen3-forced-aligner-0.6b"))
    assert known is not None
    assert known.source == "Qwen/Qwen3-ForcedAligner-0.6B-hf"
    pinned = aligner_model(settings(aligner="owner/aligner@v2"))
    assert (pinned.source, pinned.revision) == ("owner/aligner", "v2")
    assert aligner_model(settings(aligner=str(tmp_path))).folder == tmp_path
    with pytest.raises(errors.CheckpointInvalid):
        aligner_model(settings(aligner="nowhere"))
