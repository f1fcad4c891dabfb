"""The quick look at a `media_url`: its beginning and its end, never all of it."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

from core.audio.media import DecodeLimits, MediaInfo
from core.audio.probe import probe
from core.errors import MediaEmpty, MediaError, MediaTooLarge, MediaUnreachable, SourceUnavailable
from core.outbound import (
    MAX_REDIRECTS,
    RETRY_STATUSES,
    is_page,
    open_client,
    refusing_sources,
)

HEAD_BYTES = 256 << 10
"""Holds the index of formats that begin with it, and some seconds of sound."""

TAIL_BYTES = 1 << 20
"""Where MP4 written in one go has its index, and Ogg its length."""

STALL_S = 5.0
READ_S = 5.0
"""How long a server may send nothing, and how long one of the two pieces may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What a server sent of a file.

    Attributes:
        total: Bytes of the whole file, if the server says.
        is_range: Whether it sends pieces at all.
        is_packed: Whether it is compressed although we asked for none of that.
    """

    data: bytes
    total: int | None
    is_range: bool
    is_packed: bool


def probe_url(
    url: str,
    headers: Mapping[str, str],
    *,
    limits: DecodeLimits,
    max_bytes: int,
    allow_private: bool,
) -> MediaInfo | None:
    """Return what the media at `url` is, or None if beginning and end do not tell; blocks.

    Raises:
        MediaError: It cannot be fetched, or is no media.
        SourceUnavailable: Its server does not answer.
    """
    client = open_client(
        allow_private=allow_private,
        timeout_s=STALL_S,
        max_redirects=MAX_REDIRECTS,
        sensitive_headers=tuple(headers),
    )
    sent = {"accept-encoding": "identity", "user-agent": "Scriptorium/1", **headers}
    with tempfile.NamedTemporaryFile(prefix="probe-") as file, client:
        try:
            with refusing_sources():
                is_whole = _fill(client, url, sent, file, max_bytes)
        except httpx.TransportError as exc:
            raise SourceUnavailable("The source does not answer, or broke off.") from exc
        try:
            return probe(Path(file.name), limits)
        except MediaError:
            if is_whole:
                raise
            return None  # what is wrong may be the hole in the middle


def _fill(
    client: httpx.Client, url: str, headers: Mapping[str, str], file: IO[bytes], max_bytes: int
) -> bool:
    """Write beginning and end to their places, with a hole between; return whether there is none.

    Lengths that a header does not have are told from the file's size, so it must be right.
    """
    head = _read(client, url, headers, wanted=f"bytes=0-{HEAD_BYTES - 1}", most=HEAD_BYTES)
    if head.total == 0 or not head.data:
        raise MediaEmpty("The source has no bytes.")
    if head.total is not None and head.total > max_bytes:
        raise MediaTooLarge(f"The file exceeds {max_bytes} bytes.")
    if head.is_packed:
        return False
    file.write(head.data)
    num_bytes = len(head.data)
    if head.total is not None and head.total > num_bytes:
        file.truncate(head.total)
        if head.is_range:
            start = max(num_bytes, head.total - TAIL_BYTES)
            tail = _read(client, url, headers, wanted=f"bytes={start}-", most=TAIL_BYTES)
            if tail.is_range and tail.total == head.total:
                file.seek(start)
                file.write(tail.data)
                num_bytes += len(tail.data)
    file.flush()
    is_known_end = num_bytes == head.total
    return is_known_end or (head.total is None and num_bytes < HEAD_BYTES)


def _read(
    client: httpx.Client, url: str, headers: Mapping[str, str], *, wanted: str, most: int
) -> _Piece:
    """Return up to `most` bytes of an answer, whatever the server makes of the range."""
    deadline = time.monotonic() + READ_S
    with client.stream("GET", url, headers={**headers, "range": wanted}) as response:
        _check(response)
        data = bytearray()
        for block in response.iter_raw():
            data += block[: most - len(data)]
            if len(data) >= most:
                break
            if time.monotonic() > deadline:
                raise SourceUnavailable("The source is slow; its header did not come in time.")
        return _Piece(
            data=bytes(data),
            total=_total(response),
            is_range=response.status_code == 206,
            is_packed=response.headers.get("content-encoding", "identity") != "identity",
        )


def _check(response: httpx.Response) -> None:
    status = response.status_code
    if status in RETRY_STATUSES:
        raise SourceUnavailable(f"The source answered {status}.")
    if status not in (200, 206):
        raise MediaUnreachable(f"The source answered {status}.")
    if is_page(content_type := response.headers.get("content-type", "")):
        raise MediaUnreachable(f"The source answered with {content_type[:64]}, which is no media.")


def _total(response: httpx.Response) -> int | None:
    """Return the whole file's size; RFC 9110 sections 8.6 and 14.4."""
    if response.status_code == 206:
        text = response.headers.get("content-range", "").rpartition("/")[2]
    else:
        text = response.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None
