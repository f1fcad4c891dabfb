"""Newline-delimited JSON as a stream of bytes: lines by offset, never more than one in memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

NEWLINE = b"\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank.

    Attributes:
        data: Its bytes without the newline; None if it is longer than allowed.
        end: Offset of the first byte after it and its newline.
    """

    data: bytes | None
    end: int


def iter_lines(blocks: Iterable[bytes], *, start: int, max_bytes: int) -> Iterator[Line]:
    """Yield the lines of a stream that begins at offset `start`; blank ones are skipped.

    A line beyond `max_bytes` is passed over without being kept.
    """
    kept = bytearray()
    length = 0
    end = start
    for block in blocks:
        pieces = block.split(NEWLINE)
        for number, piece in enumerate(pieces):
            length += len(piece)
            if length <= max_bytes:
                kept += piece
            end += len(piece)
            if number < len(pieces) - 1:
                end += 1
                yield from _line(kept, length, end, max_bytes)
                kept, length = bytearray(), 0
    yield from _line(kept, length, end, max_bytes)


def _line(kept: bytearray, length: int, end: int, max_bytes: int) -> Iterator[Line]:
    if length > max_bytes:
        yield Line(data=None, end=end)
    elif kept.strip():
        yield Line(data=bytes(kept), end=end)


class LineCounter:
    """Counts the lines that `iter_lines` would yield, fed block by block."""

    def __init__(self) -> None:
        self._ended = 0
        self._is_open = False

    def feed(self, block: bytes) -> None:
        """Take the next bytes."""
        pieces = block.split(NEWLINE)
        for piece in pieces[:-1]:
            self._ended += self._is_open or bool(piece.strip())
            self._is_open = False
        self._is_open = self._is_open or bool(pieces[-1].strip())

    @property
    def count(self) -> int:
        """Lines so far, with one that has no newline yet."""
        return self._ended + self._is_open
