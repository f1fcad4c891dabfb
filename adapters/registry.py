"""Which adapter drives which checkpoint, by the architectures its `config.json` names.

Importing this, or an adapter's class, loads no torch. `adapters.loading` imports all families.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from adapters.base import Adapter, AdapterSpec, LoadOptions

FALLBACK_KEY = "Whisper"
"""Serves checkpoints whose architecture no key matches, and those that name none."""


class AdapterFamily(Protocol):
    """The light half of an adapter: a class that knows its checkpoints before it loads one."""

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> AdapterSpec:
        """Return what the pipeline must know, from the checkpoint's `config.json` alone."""
        ...

    @classmethod
    def load(cls, options: LoadOptions) -> Adapter:
        """Load the weights; imports torch.

        Raises:
            CheckpointInvalid: The folder's files do not make a model of this family.
        """
        ...


Family = TypeVar("Family", bound=type[AdapterFamily])
_families: dict[str, type[AdapterFamily]] = {}


def register_transcription_adapter(key: str) -> Callable[[Family], Family]:
    """Return a decorator that registers a family for architectures that contain `key`.

    Raises:
        ValueError: Another class already has this key.
    """

    def register(family: Family) -> Family:
        if _families.setdefault(key, family) is not family:
            raise ValueError(f"two adapters for {key!r}: {_families[key]} and {family}")
        return family

    return register


def resolve_adapter(architectures: Iterable[str]) -> type[AdapterFamily]:
    """Return the family of a checkpoint with these Hugging Face `architectures`.

    The first registered key that is a substring of one of them wins. No match, or no
    architectures at all, falls back to "Whisper".

    Raises:
        LookupError: Nothing is registered.
    """
    if not _families:
        raise LookupError("no transcription adapter is registered")
    names = tuple(architectures)
    for key, family in _families.items():
        if any(key in name for name in names):
            return family
    return _families[FALLBACK_KEY]
