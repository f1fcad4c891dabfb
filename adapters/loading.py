"""From a checkpoint's folder to its spec (light) and to a loaded adapter (imports torch).

To add a model family: write its package with a class under `@register_transcription_adapter`,
and import that module here.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import adapters.qwen3_asr.adapter  # registers "Qwen3ASR"
import adapters.whisper.adapter  # noqa: F401 - registers "Whisper"
from adapters.base import Adapter, AdapterSpec, LoadOptions
from adapters.device import resolve_device
from adapters.registry import AdapterFamily, resolve_adapter
from adapters.weights.resolve import read_config


def get_spec(folder: Path) -> AdapterSpec:
    """Return what the pipeline must know of the checkpoint in `folder`; reads `config.json` only.

    Raises:
        CheckpointInvalid: There is no readable `config.json`.
    """
    config = read_config(folder)
    return _family(config).describe(config)


def load_adapter(options: LoadOptions) -> Adapter:
    """Load the checkpoint in `options.folder`.

    Raises:
        CheckpointInvalid: It is not one that its family can load.
        DeviceMissing: `options.device` is not there.
    """
    options = replace(options, device=resolve_device(options.device))
    return _family(read_config(options.folder)).load(options)


def _family(config: Mapping[str, Any]) -> type[AdapterFamily]:
    return resolve_adapter(config.get("architectures") or ())
