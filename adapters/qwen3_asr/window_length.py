"""How much audio a checkpoint is given at once. No torch."""

from collections.abc import Mapping
from typing import Any

from core import errors

DEFAULT_WINDOW_MS = 30_000
"""Longest window unless the checkpoint's `config.json` says otherwise.

The family reads up to 1,200 s in one request and 180 s with word times, but 30 s is what its
feature extractor counts as one chunk (`chunk_length`), and it bounds the loss when a window fails.
Cost does not depend on it: nothing is padded.
"""
SMALL_HIDDEN_SIZE = 512
SMALL_WINDOW_MS = 12_000
"""Longest window of decoders narrower than that (the released ones have 1,024 and 2,048).

They lose their place where a word is said twice: they skip what lies between, or say it again. The
longer the audio the likelier; their aligners too place words within 70 ms in 10 s and within 300
in 30 s. Measured with 2.2 M parameters on 84 clips of 10 to 90 s, word errors in English and
character errors in Chinese: 3.8 and 11.9 % with 30 s, 2.1 and 5.5 % with 15 s, 1.7 and 4.6 % with
12 s, 2.0 and 4.0 % with 10 s.
"""
LONGEST_WINDOW_MS = 1_200_000


def choose_window_ms(config: Mapping[str, Any]) -> int:
    """Return the longest window of the checkpoint with this `config.json`.

    It follows from the decoder's size. An optional key `"scriptorium": {"window_ms": …}` sets it
    for checkpoints known to read more or less well.

    Raises:
        CheckpointInvalid: The key's value is out of range.
    """
    hidden_size = (config.get("text_config") or {}).get("hidden_size", SMALL_HIDDEN_SIZE)
    suitable_ms = SMALL_WINDOW_MS if hidden_size < SMALL_HIDDEN_SIZE else DEFAULT_WINDOW_MS
    window_ms = (config.get("scriptorium") or {}).get("window_ms", suitable_ms)
    if not isinstance(window_ms, int) or not 1000 <= window_ms <= LONGEST_WINDOW_MS:
        raise errors.CheckpointInvalid(f"scriptorium.window_ms: {window_ms!r}")
    return window_ms
