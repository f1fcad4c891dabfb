"""From a served model to a folder that `transformers` loads, and the revision it has."""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from adapters.weights import hub
from adapters.weights.default import default_folder, fetch_default, is_fetched
from adapters.weights.hub import Progress, has_weights
from core import errors
from core.checkpoints import ServedModel

_REVISION_LENGTH = 12
# What changes a transcript: weights, shapes, suppressed tokens, the vocabulary.
_HASHED = (
    "*.safetensors",
    "*.bin",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "vocab.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint on this machine.

    Attributes:
        name: What callers call it.
        folder: An ordinary Hugging Face folder.
        revision: Short; changes whenever the weights or their configuration change.
    """

    name: str
    folder: Path
    revision: str


def resolve_checkpoint(
    model: ServedModel, data_dir: Path, *, progress: Progress = lambda _line: None
) -> Checkpoint:
    """Return where `model` lies on this machine, downloading it the first time.

    A branch on the hub is looked up once and then stays as it was found, so that restarting a
    worker neither needs the network nor changes transcripts. `models fetch` does the same.

    Raises:
        CheckpointInvalid: The folder or repository holds nothing that can be served.
        Transient: Nothing is cached and the hub (and, for the default, pip) cannot be reached.
    """
    if (folder := model.folder) is not None:
        read_config(folder)
        if not has_weights(folder):
            raise errors.CheckpointInvalid(f"{folder} has a config.json but no weights.")
        return Checkpoint(name=model.name, folder=folder, revision=revision_of(folder))
    if model.is_default_checkpoint:
        folder = default_folder(data_dir)
        if not is_fetched(data_dir):
            folder = fetch_default(data_dir, progress=progress)
        return Checkpoint(name=model.name, folder=folder, revision=revision_of(folder))
    cache_dir = data_dir / "models" / "hub"
    snapshot = hub.find_cached(model.source, model.revision, cache_dir=cache_dir) or hub.download(
        model.source, model.revision, cache_dir=cache_dir, progress=progress
    )
    # A snapshot's folder is named after its commit.
    return Checkpoint(name=model.name, folder=snapshot, revision=snapshot.name[:_REVISION_LENGTH])


def read_config(folder: Path) -> dict[str, Any]:
    """Return the parsed `config.json` of a checkpoint.

    Raises:
        CheckpointInvalid: There is none, or it is no JSON object.
    """
    return _read_json(folder / "config.json")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise errors.CheckpointInvalid(
            f"{path.parent} is no checkpoint: it has no {path.name}."
        ) from exc
    except (OSError, ValueError) as exc:
        raise errors.CheckpointInvalid(f"{path} cannot be read: {exc}") from exc
    if not isinstance(value, dict):
        raise errors.CheckpointInvalid(f"{path} is not a JSON object.")
    return value


def revision_of(folder: Path) -> str:
    """Return a short digest of the files in `folder` that decide transcripts."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _HASHED for path in folder.glob(pattern)}):
        stat = path.stat()
        digest.update(f"{path.name}:{_digest(path, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()[:_REVISION_LENGTH]


@lru_cache(maxsize=64)
def _digest(path: Path, size_bytes: int, mtime_ns: int) -> str:  # noqa: ARG001 - part of the key
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
