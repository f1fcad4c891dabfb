"""Byte ranges of RFC 9110, section 14: one range; several are answered with the whole."""

import re

_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return start and end (exclusive) of the range, or None for the whole.

    An empty range (start >= end) cannot be satisfied. Headers that make no sense are ignored, as
    the RFC says.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header is not None else None
    if match is None:
        return None
    first, last = match.groups()
    if not first and not last:
        return None
    if not first:
        return max(0, size - int(last)), size
    if last and int(last) < int(first):
        return None
    return int(first), min(size, int(last) + 1) if last else size
