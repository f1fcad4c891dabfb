"""Audio in steps. No torch."""

from collections.abc import Iterator

from adapters.base import Samples
from core.transcript import SAMPLE_RATE_HZ


def split_audio_chunks(samples: Samples, *, chunk_ms: int) -> Iterator[Samples]:
    """Yield `samples` in pieces of `chunk_ms`, the last as long as it happens to be.

    Joined they are `samples`: each piece holds new audio only (a session keeps what came before).

    Raises:
        ValueError: `chunk_ms` is not positive.
    """
    if chunk_ms <= 0:
        raise ValueError(f"chunk_ms: {chunk_ms}")
    size = chunk_ms * SAMPLE_RATE_HZ // 1000
    for start in range(0, len(samples), size):
        yield samples[start : start + size]
