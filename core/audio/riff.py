"""What FFmpeg cannot know of WAV files, or finds out at a price."""

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

_CHUNK = struct.Struct("<4sI")
_PADDING = bytes(_CHUNK.size)


def find_padding(file: BinaryIO) -> int | None:
    """Return where a WAV file's zero padding begins, or None if it is no WAV or has none.

    Recorders that reserve space on a card leave it so. FFmpeg takes each eight zeros for an empty
    chunk and looks for the next one: minutes for some megabytes. Leaves `file` at its start.
    """
    try:
        return _end_of_sound(file)
    finally:
        file.seek(0)


def is_mono(file: BinaryIO) -> bool:
    """Whether the header of a WAV file says that it has one channel; leaves `file` at its start."""
    try:
        return any(
            name == b"fmt " and file.read(4)[2:] == b"\x01\x00" for name, _ in _iter_chunks(file)
        )
    finally:
        file.seek(0)


class Bounded(io.RawIOBase):
    """The first bytes of a seekable file, as a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        if whence == io.SEEK_END:
            return self._file.seek(self._size + offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """See `io.RawIOBase`."""
        left = max(0, self._size - self._file.tell())
        return self._file.read(left if size < 0 else min(size, left))


def _end_of_sound(file: BinaryIO) -> int | None:
    for name, size in _iter_chunks(file):
        if name == b"data":
            end = file.seek(size + size % 2, io.SEEK_CUR)
            return end if size and file.read(_CHUNK.size) == _PADDING else None
        if not name.isascii() or not size:
            return None
    return None


def _iter_chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield name and size of each chunk of a WAV file, with `file` where its bytes begin."""
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return
    while len(header := file.read(_CHUNK.size)) == _CHUNK.size:
        name, size = _CHUNK.unpack(header)
        begin = file.tell()
        yield name, size
        file.seek(begin + size + size % 2)
