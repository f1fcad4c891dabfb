"""Text while the audio still comes in. Importing this loads no torch.

* `StreamingASRState`: what of a hypothesis is certain (rollback by tokens, or by words).
* `split_audio_chunks`, `ChunkedStreamingConfig`: the steps.
* `start_streaming(adapter)`: an engine whose sessions take audio and give confirmed text, for
  adapters whose spec says `supports_chunked_streaming`.
* `DeltaTranscriber`: adapters that give text while they decode a window.
"""

from typing import Any

from adapters.base import Adapter
from adapters.streaming.base import (
    DeltaSink,
    DeltaTranscriber,
    StreamCounters,
    StreamingEngine,
    StreamingSession,
    StreamUpdate,
)
from adapters.streaming.chunks import split_audio_chunks
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.state import StreamingASRState

__all__ = [
    "ChunkedStreamingConfig",
    "DeltaSink",
    "DeltaTranscriber",
    "StreamCounters",
    "StreamUpdate",
    "StreamingASRState",
    "StreamingEngine",
    "StreamingSession",
    "split_audio_chunks",
    "start_streaming",
]


def start_streaming(adapter: Adapter) -> StreamingEngine[Any]:
    """Return an engine that drives streams on a loaded adapter.

    Raises:
        TypeError: Its spec does not say `supports_chunked_streaming`.
    """
    # Imported here because they load torch, or would import this package in a circle.
    from adapters.qwen3_asr.adapter import Qwen3ASRAdapter  # noqa: PLC0415
    from adapters.streaming.engine import StreamEngine  # noqa: PLC0415
    from adapters.streaming.growing import GrowingEngine  # noqa: PLC0415

    if not adapter.spec.supports_chunked_streaming:
        raise TypeError(f"{adapter.spec.name} does not stream in chunks")
    if isinstance(adapter, Qwen3ASRAdapter):
        return StreamEngine(adapter)
    return GrowingEngine(adapter)
