"""Checkpoints on this machine, as the command line shows them."""

import sys
from dataclasses import dataclass
from pathlib import Path

from adapters.loading import get_spec
from adapters.weights import hub
from adapters.weights.default import is_fetched
from adapters.weights.resolve import Checkpoint, resolve_checkpoint
from core.checkpoints import ServedModel
from core.errors import CheckpointInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCheckpoint:
    """A checkpoint that is ready to be loaded.

    Attributes:
        adapter: Name of the adapter that drives it, and of its queue.
        revision: Changes whenever the weights or their configuration change.
    """

    name: str
    adapter: str
    revision: str
    folder: Path


def fetch_local(model: ServedModel, data_path: Path) -> LocalCheckpoint:
    """Return the checkpoint, downloading it the first time; progress goes to stderr.

    Raises:
        CheckpointInvalid: There is nothing that can be served.
        Transient: It is not here, and cannot be had now.
    """
    found = _resolve(model, data_path)
    return LocalCheckpoint(
        name=model.name,
        adapter=get_spec(found.folder).name,
        revision=found.revision,
        folder=found.folder,
    )


def fetch_aligner(model: ServedModel, data_path: Path) -> None:
    """Download the forced aligner unless it is here. Raises what `fetch_local` does."""
    _resolve(model, data_path)


def find_local(model: ServedModel, data_path: Path) -> LocalCheckpoint | None:
    """Return the checkpoint if it is here and complete; downloads nothing."""
    if not is_here(model, data_path):
        return None
    try:
        return fetch_local(model, data_path)
    except CheckpointInvalid:
        return None


def _resolve(model: ServedModel, data_path: Path) -> Checkpoint:
    return resolve_checkpoint(
        model, data_path, progress=lambda line: print(f"{model.name}: {line}", file=sys.stderr)
    )


def is_here(model: ServedModel, data_path: Path) -> bool:
    """Whether nothing of it has to be downloaded."""
    if model.folder is not None:
        return True
    if model.is_default_checkpoint:
        return is_fetched(data_path)
    cache_dir = data_path / "models" / "hub"
    return hub.find_cached(model.source, model.revision, cache_dir=cache_dir) is not None
