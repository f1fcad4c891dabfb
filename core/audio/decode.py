"""Decodes media in a child process that may crash, hang or leak without harm to anyone else."""

import json
import os
import selectors
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from core import errors
from core.audio import spawn, wire
from core.audio.media import MAX_SPLIT_CHANNELS, DecodeLimits, MediaInfo
from core.audio.wire import Arguments
from core.options import Channels
from core.transcript import SAMPLE_RATE_HZ

Samples = NDArray[np.float32]

_READ_BYTES = 1 << 18
_KEPT_STDERR_BYTES = 4096
_QUOTED_CHARS = 200
_TOO_SLOW = "decoding the file takes longer than allowed"
_BROKEN_PROTOCOL = "the decoder gave an answer that makes no sense on this file"
_MEDIA_ERRORS: dict[str, type[errors.MediaError]] = {
    kind.code: kind
    for kind in (
        errors.MediaEmpty,
        errors.MediaHasNoAudio,
        errors.MediaTooLong,
        errors.MediaUndecodable,
    )
}
# Sent by operators and by a system that is out of memory; says nothing about the media.
_OUTSIDE_SIGNALS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class MediaStream:
    """The decoded samples of one media; made by `open_media`.

    Attributes:
        info: What the media is.
        num_channels: Channels of every block: 1 for `mix`, else those of the media.
        num_samples: How many samples a channel were read so far.
        warnings: Codes such as "media_damaged"; complete once the stream is exhausted.
    """

    def __init__(self, child: "_Child", channels: Channels) -> None:
        self._child = child
        self.info = _read_info(child)
        is_split = channels is Channels.SPLIT
        self.num_channels = min(self.info.num_channels, MAX_SPLIT_CHANNELS) if is_split else 1
        self.num_samples = 0
        self.warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Samples]:
        """Yield the samples in order: float32, 16 kHz, within [-1, 1], shape (num_channels, n).

        Can be consumed once.

        Raises:
            MediaUndecodable: The decoder crashed, hung or exceeded its limits.
            MediaTooLong: There is more audio than allowed.
        """
        while True:
            kind, payload = self._child.read_frame()
            if kind == wire.END:
                self.warnings = tuple(json.loads(payload))
                return
            if kind != wire.BLOCK or len(payload) % (4 * self.num_channels):
                raise errors.MediaUndecodable(_BROKEN_PROTOCOL)
            block = np.frombuffer(payload, np.float32).reshape(self.num_channels, -1)
            self.num_samples += block.shape[1]
            yield block


@contextmanager
def open_media(path: Path, *, limits: DecodeLimits, channels: Channels) -> Iterator[MediaStream]:
    """Start to decode the file at `path`, whatever its name says it is.

    Memory does not depend on the recording's length. The child ends with the `with` block, and on
    Linux also with the thread that entered it, so enter and leave in one thread.

    Raises:
        MediaGone: There is no such file.
        MediaEmpty: No bytes, or no audio behind the header.
        MediaHasNoAudio: A video or other container without an audio track.
        MediaUndecodable: Not audio, broken, or more than the decoder may spend on it.
        ServiceUnavailable: Something outside killed the decoder; trying again may help.
    """
    with _start_child(path, limits=limits, channels=channels, is_probe=False) as child:
        yield MediaStream(child, channels)


def read_media_info(path: Path, *, limits: DecodeLimits) -> MediaInfo:
    """Decode the first block of the file at `path`; raises what `open_media` does."""
    with _start_child(path, limits=limits, channels=Channels.MIX, is_probe=True) as child:
        return _read_info(child)


def read_excerpts(
    path: Path, *, count: int, length_ms: int, min_media_ms: int, limits: DecodeLimits
) -> list[Samples]:
    """Return `count` parts of the file at `path`, evenly spread, without decoding what is between.

    They are 16 kHz, mixed to mono, shape (num_samples,); zeros where the file ends or cannot be
    searched. Media that claims to be shorter than `min_media_ms`, or nothing, has none.

    Raises:
        MediaError: What `open_media` raises.
        ServiceUnavailable: See `open_media`.
    """
    num_samples = length_ms * SAMPLE_RATE_HZ // 1000
    with _start_child(
        path,
        limits=limits,
        channels=Channels.MIX,
        is_probe=False,
        num_excerpts=count,
        excerpt_samples=num_samples,
    ) as child:
        claimed_ms = _read_info(child).claimed_ms
        if claimed_ms is None or claimed_ms < min_media_ms:
            return []
        excerpts = []
        for _ in range(count):
            kind, payload = child.read_frame()
            if kind != wire.BLOCK or len(payload) != 4 * num_samples:
                raise errors.MediaUndecodable(_BROKEN_PROTOCOL)
            excerpts.append(np.frombuffer(payload, np.float32))
        return excerpts


def _read_info(child: "_Child") -> MediaInfo:
    kind, payload = child.read_frame()
    if kind != wire.INFO:
        raise errors.MediaUndecodable(_BROKEN_PROTOCOL)
    return MediaInfo(**json.loads(payload))


@contextmanager
def _start_child(
    path: Path,
    *,
    limits: DecodeLimits,
    channels: Channels,
    is_probe: bool,
    num_excerpts: int = 0,
    excerpt_samples: int = 0,
) -> Iterator["_Child"]:
    arguments = Arguments(
        rate_hz=SAMPLE_RATE_HZ,
        is_split=channels is Channels.SPLIT,
        is_probe=is_probe,
        max_media_s=limits.max_media_s,
        cpu_s=limits.timeout_s,
        memory_bytes=limits.memory_bytes,
        parent_pid=os.getpid(),
        num_excerpts=num_excerpts,
        excerpt_samples=excerpt_samples,
    )
    try:
        media = path.open("rb")
    except FileNotFoundError as exc:
        raise errors.MediaGone("the media is no longer there") from exc
    with media, _Child(media, arguments, limits) as child:
        yield child


class _Child:
    """The process, its pipes, and the patience with it."""

    def __init__(self, media: IO[bytes], arguments: Arguments, limits: DecodeLimits) -> None:
        self._limits = limits
        self._waited_s = 0.0
        self._buffer = bytearray()
        self._stderr = b""
        self._process = spawn.start_child(media, arguments)
        self._out_fd, self._err_fd = self._process.out_fd, self._process.err_fd
        self._selector = selectors.DefaultSelector()
        for fd in (self._out_fd, self._err_fd):
            self._selector.register(fd, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._selector.close()
        self._process.end()

    def read_frame(self) -> tuple[bytes, bytes]:
        """Return the next frame's kind and payload; raise what the child reports or suffered."""
        kind, length = wire.HEADER.unpack(self._read(wire.HEADER.size))
        if kind not in wire.KINDS or length > wire.MAX_PAYLOAD_BYTES:
            raise errors.MediaUndecodable(_BROKEN_PROTOCOL)
        payload = self._read(length)
        if kind == wire.FAILED:
            report = json.loads(payload)
            raise _MEDIA_ERRORS.get(report["code"], errors.MediaUndecodable)(report["message"])
        return kind, payload

    def _read(self, num_bytes: int) -> bytes:
        while len(self._buffer) < num_bytes:
            self._receive()
        taken = bytes(self._buffer[:num_bytes])
        del self._buffer[:num_bytes]
        return taken

    def _receive(self) -> None:
        """Wait for more of either pipe; time spent by the consumer does not count."""
        left_s = max(0.0, self._limits.timeout_s - self._waited_s)
        began = time.monotonic()
        events = self._selector.select(min(left_s, self._limits.stall_s))
        self._waited_s += time.monotonic() - began
        if not events:
            raise errors.MediaUndecodable(_TOO_SLOW)
        # Standard error first, so that it is complete where the end is explained.
        for fd in sorted((key.fd for key, _ in events), key=lambda fd: fd == self._out_fd):
            data = os.read(fd, _READ_BYTES)
            if fd == self._err_fd:
                self._hear_stderr(data)
            elif data:
                self._buffer += data
            else:
                raise self._explain_end()

    def _hear_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-_KEPT_STDERR_BYTES:]
        if not data:
            self._selector.unregister(self._err_fd)

    def _explain_end(self) -> errors.ScriptoriumError:
        """Return why the child ended without a last frame."""
        try:
            status = self._process.wait(self._limits.stall_s)
        except TimeoutError:
            return errors.MediaUndecodable(_TOO_SLOW)
        if status == -signal.SIGXCPU:
            return errors.MediaUndecodable(_TOO_SLOW)
        if -status in _OUTSIDE_SIGNALS:
            return errors.ServiceUnavailable(f"the decoder was stopped by signal {-status}")
        self._hear_stderr_to_its_end()
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        reason = f"signal {-status}" if status < 0 else f"status {status}"
        detail = f": {lines[-1][:_QUOTED_CHARS]}" if lines else ""
        return errors.MediaUndecodable(f"the decoder failed on this file ({reason}{detail})")

    def _hear_stderr_to_its_end(self) -> None:
        while self._err_fd in self._selector.get_map():
            self._hear_stderr(os.read(self._err_fd, _READ_BYTES))
