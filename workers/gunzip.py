"""Unpacks what a server packed although it was asked not to, some at a time."""

import zlib
from collections.abc import Iterator

from core.errors import MediaUnreachable

ENCODINGS = frozenset({"gzip", "x-gzip"})
_GZIP_WINDOW = 31  # zlib.h, inflateInit2: the largest window, and a gzip header
_PIECE_BYTES = 1 << 20


class Gunzip:
    """Takes packed blocks as they come; a small one may hold gigabytes, so pieces are bounded.

    Source: RFC 9110 section 8.4.1.3; members one after another, as in RFC 1952 section 2.2.
    """

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)

    def unpack(self, block: bytes) -> Iterator[bytes]:
        """Yield what is in `block`.

        Raises:
            MediaUnreachable: It is no gzip.
        """
        try:
            is_full = False
            while block or is_full:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP_WINDOW)
                piece = self._member.decompress(block, _PIECE_BYTES)
                yield piece
                block = self._member.unconsumed_tail or self._member.unused_data
                # Some of the output may be left where no input is.
                is_full = len(piece) == _PIECE_BYTES and not self._member.eof
        except zlib.error as exc:
            raise MediaUnreachable("The source's gzip is damaged.") from exc

    def check_end(self) -> None:
        """Refuse an end in the middle.

        Raises:
            MediaUnreachable: See above.
        """
        if not self._member.eof:
            raise MediaUnreachable("The source's gzip ends too early.")
