"""Which checkpoints are served and under which names. Reads no weights, imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from core import errors
from core.settings import Settings

DEFAULT_MODEL = "whisper-base"
"""The only name that `models fetch` can provide where no model hub is reachable."""

_ENGLISH_TOO = ("tiny", "base", "small", "medium")
_MULTILINGUAL = ("large", "large-v2", "large-v3", "large-v3-turbo")
KNOWN_MODELS: Mapping[str, str] = MappingProxyType(
    {f"whisper-{size}": f"openai/whisper-{size}" for size in (*_ENGLISH_TOO, *_MULTILINGUAL)}
    | {f"whisper-{size}.en": f"openai/whisper-{size}.en" for size in _ENGLISH_TOO}
    | {
        "qwen3-asr-0.6b": "Qwen/Qwen3-ASR-0.6B-hf",
        "qwen3-asr-1.7b": "Qwen/Qwen3-ASR-1.7B-hf",
        "qwen3-forced-aligner-0.6b": "Qwen/Qwen3-ForcedAligner-0.6B-hf",
    }
)
"""Hub ids of names that need no source. Qwen's are the `-hf` repositories: the others lack what
`transformers` needs to load them without remote code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A checkpoint and the name callers use for it.

    Attributes:
        source: A hub id ("openai/whisper-small") or a folder, as written in the settings.
        revision: Branch, tag or commit on the hub; None is the default branch, and for a folder
            there is none to choose.
    """

    name: str
    source: str
    revision: str | None = None

    @property
    def is_default_checkpoint(self) -> bool:
        """Whether this is the checkpoint that can be had without a model hub."""
        return self.revision is None and self.source == KNOWN_MODELS[DEFAULT_MODEL]

    @property
    def folder(self) -> Path | None:
        """The local folder, or None if `source` is a hub id."""
        return Path(self.source).expanduser() if is_folder(self.source) else None


def is_folder(source: str) -> bool:
    """Whether `source` is a path: "openai/whisper-base" is not, unless there is such a folder."""
    if source.startswith(("/", "./", "../", "~")) or source in (".", ".."):
        return True
    return source.count("/") != 1 or Path(source).is_dir()


def parse_models(text: str) -> tuple[ServedModel, ...]:
    """Read `Settings.models`: "NAME[=HUB_ID_OR_FOLDER[@REVISION]],…"; the first is the default.

    A folder or a hub id may stand without a name and is served under its last component.

    Raises:
        CheckpointInvalid: Nothing is named, a name is used twice, or a bare name is unknown.
    """
    models = tuple(_parse_model(part.strip()) for part in text.split(",") if part.strip())
    if not models:
        raise errors.CheckpointInvalid("No model is named in the settings.")
    names = [model.name for model in models]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise errors.CheckpointInvalid(f"Model names are used twice: {', '.join(doubled)}.")
    return models


def served_models(settings: Settings) -> tuple[ServedModel, ...]:
    """Return what `settings` serves, the default first."""
    return parse_models(settings.models)


def default_model(settings: Settings) -> ServedModel:
    """Return the checkpoint of jobs that name none."""
    return served_models(settings)[0]


def aligner_model(settings: Settings) -> ServedModel | None:
    """Return the forced aligner beside the served models, or None if none is set.

    Raises:
        CheckpointInvalid: The setting names neither a folder nor a hub id.
    """
    return None if settings.aligner is None else _parse_model(settings.aligner.strip())


def find_model(settings: Settings, name: str) -> ServedModel | None:
    """Return the checkpoint served as `name`, or None."""
    return next((model for model in served_models(settings) if model.name == name), None)


def get_model(settings: Settings, name: str | None) -> ServedModel:
    """Return the checkpoint served as `name`; None is the default.

    Raises:
        UnknownModel: Nothing is served under that name; the message lists what is.
    """
    if name is None:
        return default_model(settings)
    model = find_model(settings, name)
    if model is None:
        served = ", ".join(model.name for model in served_models(settings))
        raise errors.UnknownModel(f"{name!r} is not served here; there is {served}.", param="model")
    return model


def _parse_model(entry: str) -> ServedModel:
    name, has_source, source = (part.strip() for part in entry.partition("="))
    if not has_source:
        name, source = "", name
    if not name and source in KNOWN_MODELS:
        return ServedModel(name=source, source=KNOWN_MODELS[source])
    if not source or (has_source and not name):
        raise errors.CheckpointInvalid(f"{entry!r} is not NAME=HUB_ID_OR_FOLDER.")
    revision = None
    if not Path(source).expanduser().is_dir() and "@" in source:
        source, _, revision = source.rpartition("@")
    if source in KNOWN_MODELS:
        source = KNOWN_MODELS[source]
    if "/" not in source and not is_present(source):
        known = ", ".join(KNOWN_MODELS)
        raise errors.CheckpointInvalid(
            f"{source!r} is neither a folder nor a hub id (OWNER/NAME) nor one of {known}."
        )
    return ServedModel(
        name=name or Path(source).expanduser().resolve().name,
        source=str(Path(source).absolute()) if is_present(source) else source,
        revision=revision or None,
    )


def is_present(source: str) -> bool:
    """Whether `source` is an existing folder."""
    return Path(source).expanduser().is_dir()
