"""What `scriptorium listen` plays: pieces of PCM16 from a recording or from stdin."""

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from core.audio.decode import open_media
from core.audio.media import DecodeLimits
from core.options import Channels
from core.settings import Settings
from core.transcript import SAMPLE_RATE_HZ

PIECE_MS = 100
_POLL_S = 0.2


def read_file(path: Path, settings: Settings) -> Iterator[bytes]:
    """Yield a recording of any format in pieces at 16 kHz; raises what `open_media` does."""
    size = SAMPLE_RATE_HZ * PIECE_MS // 1000
    rest = np.zeros(0, np.float32)
    limits = DecodeLimits.from_settings(settings)
    with open_media(path, limits=limits, channels=Channels.MIX) as media:
        for block in media:
            rest = np.concatenate((rest, block[0]))
            whole = len(rest) - len(rest) % size
            for at in range(0, whole, size):
                yield _to_pcm(rest[at : at + size])
            rest = rest[whole:]
    if len(rest):
        yield _to_pcm(rest)


def read_stdin(rate_hz: int, stop: threading.Event) -> Iterator[bytes]:
    """Yield raw PCM16 as it comes, in pieces of whole samples; half a sample at the end is left."""
    pipe = sys.stdin.fileno()
    size = 2 * rate_hz * PIECE_MS // 1000
    rest = b""
    while not stop.is_set():
        if not select.select([pipe], [], [], _POLL_S)[0]:
            continue
        data = os.read(pipe, size)
        if not data:
            return
        rest += data
        whole = len(rest) & ~1
        if whole:
            yield rest[:whole]
        rest = rest[whole:]


def pace(pieces: Iterator[bytes], speed: float, stop: threading.Event) -> Iterator[bytes]:
    """Yield the pieces when they would be spoken, `speed` times as fast, until `stop` is set."""
    started_s = time.monotonic()
    for number, piece in enumerate(pieces):
        due_s = started_s + number * PIECE_MS / 1000 / speed
        if stop.wait(max(0.0, due_s - time.monotonic())):
            return
        yield piece


def unhurried(pieces: Iterator[bytes], is_taken: Callable[[], bool], every: int) -> Iterator[bytes]:
    """Yield the pieces as fast as the other side takes them: asked after `every` pieces."""
    for number, piece in enumerate(pieces, start=1):
        yield piece
        if number % every == 0 and not is_taken():
            return


def _to_pcm(samples: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> bytes:
    return np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
