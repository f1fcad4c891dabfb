"""Whisper's light half: what the pipeline knows of it before any weights are loaded."""

from collections.abc import Mapping
from typing import Any

from adapters.base import Adapter, AdapterSpec, LoadOptions
from adapters.registry import register_transcription_adapter

# Vocabularies below this are English-only (openai-whisper, `model.py`, `is_multilingual`).
_MULTILINGUAL_VOCABULARY = 51_865


@register_transcription_adapter("Whisper")
class WhisperAdapter:
    """OpenAI's Whisper and its fine-tuned and distilled relatives."""

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> AdapterSpec:
        """See `AdapterFamily`."""
        multilingual = int(config.get("vocab_size", 0)) >= _MULTILINGUAL_VOCABULARY
        return AdapterSpec(
            name="whisper",
            window_ms=30_000,
            padded_ms=30_000,
            detects_by_vote=multilingual,
            supports_translate=multilingual,
            supports_chunked_streaming=True,
        )

    @classmethod
    def load(cls, options: LoadOptions) -> Adapter:
        """See `AdapterFamily`."""
        # Here and not above: this imports torch, and media workers only describe checkpoints.
        from adapters.whisper.runtime import WhisperRuntime  # noqa: PLC0415

        return WhisperRuntime.from_options(options)
