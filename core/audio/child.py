"""The decoding child: media on standard input, float32 samples on standard output.

Run as `python -m core.audio.child ARGUMENTS`, where ARGUMENTS is JSON (see `Arguments`). Parsers of
foreign bytes crash, hang and leak; here that costs one process that may use little and open
nothing. Imports stay light, because the API starts one for every upload.
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
from dataclasses import asdict, dataclass
from typing import BinaryIO

import numpy as np
import soxr
from numpy.typing import NDArray

from core.audio import wire
from core.audio.media import MAX_SPLIT_CHANNELS
from core.audio.mix import Limiter, Mixer
from core.audio.source import Block, MediaSource
from core.errors import MediaError, MediaTooLong

Floats = NDArray[np.float32]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NUM_OPEN_FILES = 3
_SILENCE_BLOCK_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the parent asks for.

    Attributes:
        rate_hz: Rate of the samples to deliver.
        is_split: Keep channels apart instead of mixing them.
        is_probe: Stop after the first block.
        max_media_s: Longest audio to deliver.
        cpu_s: Most CPU time.
        memory_bytes: Most address space.
        parent_pid: Whose death ends this process.
    """

    rate_hz: int
    is_split: bool
    is_probe: bool
    max_media_s: int
    cpu_s: int
    memory_bytes: int
    parent_pid: int


class Normaliser:
    """Turns blocks of any rate and channel count into samples of one rate and count."""

    def __init__(self, rate_hz: int, *, num_channels: int | None) -> None:
        """Mix to one channel, or keep `num_channels` apart if given."""
        self._rate_hz = rate_hz
        self._num_channels = num_channels
        self._limiters = [Limiter(rate_hz) for _ in range(num_channels or 1)]
        self._shape: tuple[int, int] | None = None
        self._mixer: Mixer | None = None
        self._resampler: soxr.ResampleStream | None = None

    def push(self, block: Block) -> Floats:
        """Return what is finished, shape (num_channels, n)."""
        done = []
        if self._shape != (len(block.samples), block.sample_rate_hz):
            done.append(self._drain())
            self._start(len(block.samples), block.sample_rate_hz)
        samples = self._arrange(block.samples)
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples.T.copy()).T
        done.append(samples)
        return self._limit(np.concatenate(done, axis=1))

    def finish(self) -> Floats:
        """Return the rest."""
        rest = self._limit(self._drain())
        return np.concatenate((rest, np.stack([x.flush() for x in self._limiters])), axis=1)

    def _start(self, num_channels: int, sample_rate_hz: int) -> None:
        self._shape = (num_channels, sample_rate_hz)
        if self._num_channels is None:
            self._mixer = Mixer(num_channels, sample_rate_hz)
        self._resampler = None
        if sample_rate_hz != self._rate_hz:
            self._resampler = soxr.ResampleStream(
                sample_rate_hz, self._rate_hz, len(self._limiters), dtype="float32"
            )

    def _arrange(self, samples: Floats) -> Floats:
        if self._num_channels is None:
            assert self._mixer is not None
            return self._mixer.mix(samples)[None]
        missing = self._num_channels - len(samples)
        return np.pad(samples[: self._num_channels], ((0, max(0, missing)), (0, 0)))

    def _drain(self) -> Floats:
        empty = np.empty((len(self._limiters), 0), np.float32)
        if self._resampler is None:
            return empty
        tail: Floats = self._resampler.resample_chunk(empty.T.copy(), last=True).T
        return tail

    def _limit(self, samples: Floats) -> Floats:
        return np.stack([x.push(row) for x, row in zip(self._limiters, samples, strict=True)])


def decode(file: BinaryIO, out: BinaryIO, arguments: Arguments) -> None:
    """Write the frames of `file` to `out`; see `core.audio.wire`.

    Raises:
        MediaError: The media cannot be decoded or is too long.
    """
    source = MediaSource(file)
    normaliser: Normaliser | None = None
    max_samples = arguments.max_media_s * arguments.rate_hz
    num_samples = 0

    def deliver(samples: Floats) -> None:
        nonlocal num_samples
        num_samples += samples.shape[1]
        if num_samples > max_samples:
            raise MediaTooLong(f"the audio is longer than {arguments.max_media_s} s")
        if samples.shape[1]:
            wire.write_frame(out, wire.BLOCK, np.ascontiguousarray(samples).tobytes())

    for block in source:
        if normaliser is None:
            info = source.get_info(block)
            wire.write_json(out, wire.INFO, asdict(info))
            if arguments.is_probe:
                break
            num_channels = min(info.num_channels, MAX_SPLIT_CHANNELS)
            normaliser = Normaliser(
                arguments.rate_hz, num_channels=num_channels if arguments.is_split else None
            )
            missing = info.start_ms * arguments.rate_hz // 1000
            while missing > 0:
                part = min(missing, _SILENCE_BLOCK_S * arguments.rate_hz)
                deliver(np.zeros((num_channels if arguments.is_split else 1, part), np.float32))
                missing -= part
        deliver(normaliser.push(block))
    if normaliser is not None:
        deliver(normaliser.finish())
    warnings = []
    if source.num_bad_packets or source.is_cut_short or source.num_bad_samples:
        warnings.append("media_damaged")
    wire.write_json(out, wire.END, warnings)


def warm_up() -> None:
    """Decode a moment of silence, so that whatever is imported late is imported now."""
    data = bytes(64)
    head = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVEfmt ", 16, 1, 1, 8000,
                       16000, 2, 16, b"data", len(data))  # fmt: skip
    decode(
        io.BytesIO(head + data),
        io.BytesIO(),
        Arguments(rate_hz=16000, max_media_s=1, is_split=False, is_probe=False, cpu_s=1,
                  memory_bytes=0, parent_pid=0),
    )  # fmt: skip


def restrict(arguments: Arguments) -> None:
    """Give up what decoding does not need; called once everything is imported."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != arguments.parent_pid:
            sys.exit("the parent is gone")
    limits = {
        resource.RLIMIT_AS: arguments.memory_bytes,
        resource.RLIMIT_CPU: arguments.cpu_s,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        # As many as are open: nothing else can be opened or connected to, whoever asks.
        resource.RLIMIT_NOFILE: _NUM_OPEN_FILES,
    }
    for kind, value in limits.items():
        with contextlib.suppress(OSError, ValueError):  # e.g. macOS knows no RLIMIT_AS
            resource.setrlimit(kind, (value, value + 5 if kind == resource.RLIMIT_CPU else value))


def main() -> int:
    """Decode standard input; return 0 also if the media is bad, since the frames say so."""
    arguments = Arguments(**json.loads(sys.argv[1]))
    warm_up()
    restrict(arguments)
    file, out = os.fdopen(0, "rb", closefd=False), os.fdopen(1, "wb", closefd=False)
    try:
        decode(file, out, arguments)
    except MediaError as exc:
        wire.write_json(out, wire.FAILED, {"code": exc.code, "message": str(exc)})
    except MemoryError:
        message = "decoding the file needs more memory than allowed"
        wire.write_json(out, wire.FAILED, {"code": "media_undecodable", "message": message})
    except BrokenPipeError:
        pass  # the parent has heard enough
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())  # no interpreter shutdown: destructors of broken media are a risk for nothing
