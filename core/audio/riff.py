"""What FFmpeg cannot know of WAV files, or finds out at a price."""

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

_CHUNK = struct.Struct("<4sI")
_PADDING = bytes(_CHUNK.size)
_UNKNOWN_SIZE = b"\xff\xff\xff\xff"  # FFmpeg then reads to the end of the file
_TAGS = (b"TAG", b"ID3", b"APETAGEX")
_MIN_LOST_BYTES = 4096
"""Less than this after the sound is taken for some program's mark: a tenth of a second."""


def correct(file: BinaryIO) -> "Corrected | None":
    """Return a WAV file as FFmpeg should see it, or None if that is as it is or no WAV.

    Zero padding after the sound is cut off: recorders that reserve space on a card leave it so,
    and FFmpeg takes each eight zeros for an empty chunk and looks for the next one, minutes for
    some megabytes. Sound after the size that the header tells is brought back: sizes have 32 bits,
    so that recordings over 4 GiB begin to count at zero again, and a recorder that is switched off
    leaves the size it wrote last. Leaves `file` at its start.
    """
    try:
        return _correct(file)
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


class Corrected(io.RawIOBase):
    """A seekable file with another end, or with other bytes at one place.

    Attributes:
        is_damaged: Whether the header lies about the sound.
    """

    def __init__(self, file: BinaryIO, *, size: int, patch_at: int = 0, patch: bytes = b"") -> None:
        self.is_damaged = bool(patch)
        self._file = file
        self._size = size
        self._patch_at = patch_at
        self._patch = patch

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
        start = self._file.tell()
        left = max(0, self._size - start)
        data = self._file.read(left if size < 0 else min(size, left))
        first = max(start, self._patch_at)
        last = min(start + len(data), self._patch_at + len(self._patch))
        if first >= last:
            return data
        patch = self._patch[first - self._patch_at : last - self._patch_at]
        return data[: first - start] + patch + data[last - start :]


def _correct(file: BinaryIO) -> Corrected | None:
    for name, size in _iter_chunks(file):
        if name == b"data":
            begin = file.tell()
            end = file.seek(size + size % 2, io.SEEK_CUR)
            after = file.read(_CHUNK.size)
            total = file.seek(0, io.SEEK_END)
            if size and after == _PADDING:
                return Corrected(file, size=end)
            if size and total - end >= _MIN_LOST_BYTES and not _is_chunk(after, total - end):
                return Corrected(file, size=total, patch_at=begin - 4, patch=_UNKNOWN_SIZE)
            return None
        if not name.isascii() or not size:
            return None
    return None


def _is_chunk(head: bytes, num_bytes: int) -> bool:
    """Whether what follows the sound, `num_bytes` that begin with `head`, is a chunk or a tag."""
    name, size = _CHUNK.unpack(head)
    is_named = all(0x20 <= letter < 0x7F for letter in name)
    return head.startswith(_TAGS) or (is_named and size <= num_bytes)


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
