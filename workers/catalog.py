"""The checkpoints this process can serve: their specs without weights, and their weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from adapters.base import Adapter, AdapterSpec, LoadOptions
from adapters.loading import get_spec, load_adapter
from adapters.weights.resolve import Checkpoint, resolve_checkpoint
from core.checkpoints import ServedModel, aligner_model, get_model, served_models
from core.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What the pipeline must know of a served model before its weights are loaded."""

    spec: AdapterSpec
    revision: str | None


class Catalog(Protocol):
    """Finds and loads served models by name."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of all served models, the default first."""
        ...

    def describe(self, model: str) -> Description:
        """Return what is known without loading weights.

        Raises:
            UnknownModel: Nothing is served under that name.
            CheckpointInvalid: What is served cannot be used.
            Transient: The checkpoint has to be fetched first, and cannot be now.
        """
        ...

    def load(self, model: str) -> Adapter:
        """Load the weights; takes seconds to minutes. Raises what `describe` does."""
        ...


class FolderCatalog:
    """Checkpoints in folders of this machine, fetched when they are missing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._aligner = aligner_model(settings)
        self._resolve = lru_cache(maxsize=None)(self._resolve_uncached)
        self._describe = lru_cache(maxsize=None)(self._describe_uncached)

    @property
    def models(self) -> tuple[str, ...]:
        """See `Catalog`."""
        return tuple(model.name for model in served_models(self._settings))

    def describe(self, model: str) -> Description:
        """See `Catalog`; what a folder holds is read once."""
        return self._describe(model)

    def _describe_uncached(self, model: str) -> Description:
        """Read what `describe` returns.

        An aligner that the model uses is part of its revision: with it transcripts have words and
        segments that they lack without.
        """
        checkpoint = self._find(model)
        spec = get_spec(checkpoint.folder)
        aligner = self._find_aligner(spec)
        revision = checkpoint.revision
        return Description(
            spec=spec, revision=f"{revision}+{aligner.revision}" if aligner else revision
        )

    def load(self, model: str) -> Adapter:
        """See `Catalog`."""
        folder = self._find(model).folder
        aligner = self._find_aligner(get_spec(folder))
        return load_adapter(
            LoadOptions(
                folder=folder,
                device=self._settings.device,
                dtype=self._settings.dtype,
                num_threads=self._settings.threads,
                extra={"aligner": str(aligner.folder)} if aligner else {},
            )
        )

    def _find(self, model: str) -> Checkpoint:
        return self._resolve(get_model(self._settings, model))

    def _find_aligner(self, spec: AdapterSpec) -> Checkpoint | None:
        if self._aligner is None or not spec.uses_aligner:
            return None
        return self._resolve(self._aligner)

    def _resolve_uncached(self, model: ServedModel) -> Checkpoint:
        return resolve_checkpoint(model, self._settings.data_path)


def models_by_adapter(catalog: Catalog) -> Mapping[str, tuple[str, ...]]:
    """Return the served models of each adapter; may have to fetch checkpoints."""
    grouped: dict[str, list[str]] = {}
    for model in catalog.models:
        grouped.setdefault(catalog.describe(model).spec.name, []).append(model)
    return {adapter: tuple(models) for adapter, models in grouped.items()}
