"""The decoding child: media on standard input, float32 samples on standard output.

Forked by `core.audio.nursery`, or run as `python -m core.audio.child ARGUMENTS`; see
`core.audio.wire`. Parsers of foreign bytes crash, hang and leak; here that costs one process that
may use little and open nothing. Imports stay light.
"""

import contextlib
import ctypes
import io
import json
import os
import resource
import signal
import struct
import sys
from dataclasses import asdict
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from core.audio import wire
from core.audio.media import MAX_SPLIT_CHANNELS, MediaInfo
from core.audio.normalise import Normaliser
from core.audio.source import MediaSource
from core.audio.wire import Arguments
from core.errors import MediaError, MediaTooLong

Floats = NDArray[np.float32]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NUM_OPEN_FILES = 3
_SILENCE_BLOCK_S = 10
_GRACE_S = 5


def decode(file: BinaryIO, out: BinaryIO, arguments: Arguments) -> None:
    """Write the frames of `file` to `out`.

    Raises:
        MediaError: The media cannot be decoded or is too long.
    """
    source = MediaSource(file)
    blocks = iter(source)
    first = next(blocks)
    info = source.get_info(first)
    wire.write_json(out, wire.INFO, asdict(info))
    if arguments.num_excerpts:
        _send_excerpts(out, source, arguments)
    elif not arguments.is_probe:
        delivery = _Delivery(out, info, arguments)
        normaliser = Normaliser(arguments.rate_hz, num_channels=delivery.num_split_channels)
        delivery.send(normaliser.push(first))
        for block in blocks:
            delivery.send(normaliser.push(block))
        delivery.send(normaliser.finish())
    wire.write_json(out, wire.END, ["media_damaged"] if source.is_damaged else [])


def _send_excerpts(out: BinaryIO, source: MediaSource, arguments: Arguments) -> None:
    for number in range(arguments.num_excerpts):
        normaliser = Normaliser(arguments.rate_hz, num_channels=None)
        parts = []
        num_missing = arguments.excerpt_samples
        for block in source.iter_from((number + 0.5) / arguments.num_excerpts):
            parts.append(normaliser.push(block)[0, :num_missing])
            num_missing -= len(parts[-1])
            if not num_missing:
                break
        excerpt = np.concatenate((*parts, np.zeros(num_missing, np.float32)))
        wire.write_frame(out, wire.BLOCK, excerpt.tobytes())


class _Delivery:
    """Sends samples, and refuses to send too many."""

    def __init__(self, out: BinaryIO, info: MediaInfo, arguments: Arguments) -> None:
        """Begin with the silence before a late track."""
        self._out = out
        self._arguments = arguments
        self._num_samples = 0
        self.num_split_channels = (
            min(info.num_channels, MAX_SPLIT_CHANNELS) if arguments.is_split else None
        )
        missing = info.start_ms * arguments.rate_hz // 1000
        while missing > 0:
            part = min(missing, _SILENCE_BLOCK_S * arguments.rate_hz)
            self.send(np.zeros((self.num_split_channels or 1, part), np.float32))
            missing -= part

    def send(self, samples: Floats) -> None:
        """Send one block, shape (num_channels, n)."""
        self._num_samples += samples.shape[1]
        if self._num_samples > self._arguments.max_media_s * self._arguments.rate_hz:
            raise MediaTooLong(f"the audio is longer than {self._arguments.max_media_s} s")
        if samples.shape[1]:
            wire.write_frame(self._out, wire.BLOCK, np.ascontiguousarray(samples).tobytes())


def warm_up() -> None:
    """Decode a moment of silence, so that whatever is imported late is imported now."""
    data = bytes(64)
    head = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVEfmt ", 16, 1, 1, 8000,
                       16000, 2, 16, b"data", len(data))  # fmt: skip
    arguments = Arguments(rate_hz=16000, max_media_s=1, is_split=False, is_probe=False, cpu_s=1,
                          memory_bytes=0, parent_pid=0)  # fmt: skip
    decode(io.BytesIO(head + data), io.BytesIO(), arguments)


def restrict(arguments: Arguments) -> None:
    """Give up what decoding does not need; called once everything is imported."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != arguments.parent_pid:
            sys.exit("the parent is gone")
    limits = {
        resource.RLIMIT_AS: (arguments.memory_bytes, arguments.memory_bytes),
        resource.RLIMIT_CPU: (arguments.cpu_s, arguments.cpu_s + _GRACE_S),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (0, 0),
        # As many as are open: nothing else can be opened or connected to, whoever asks.
        resource.RLIMIT_NOFILE: (_NUM_OPEN_FILES, _NUM_OPEN_FILES),
    }
    for kind, values in limits.items():
        with contextlib.suppress(OSError, ValueError):  # e.g. macOS knows no RLIMIT_AS
            resource.setrlimit(kind, values)


def run(arguments: Arguments) -> int:
    """Decode standard input; return 0 also if the media is bad, since the frames say so."""
    restrict(arguments)
    file, out = os.fdopen(0, "rb", closefd=False), os.fdopen(1, "wb", closefd=False)
    try:
        decode(file, out, arguments)
    except MediaError as exc:
        wire.write_json(out, wire.FAILED, {"code": exc.code, "message": str(exc)})
    except MemoryError:
        message = "decoding the file needs more memory than allowed"
        wire.write_json(out, wire.FAILED, {"code": "media_undecodable", "message": message})
    return 0


def main() -> int:
    """Do what the first argument says, in a process of its own."""
    warm_up()
    return run(Arguments(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    os._exit(main())  # no interpreter shutdown: destructors of broken media are a risk for nothing
