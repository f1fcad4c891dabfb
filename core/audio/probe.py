"""The quick check of an upload at the door."""

from pathlib import Path

from core.audio.decode import read_media_info
from core.audio.media import DecodeLimits, MediaInfo

_STALL_S = 20


def probe(path: Path, limits: DecodeLimits) -> MediaInfo:
    """Return what the media at `path` is, once its first audio was really decoded.

    Costs about 0.3 s and reads only as much of the file as its format needs.

    Raises:
        MediaError: A transcription of this file would fail; see `core.audio.decode.open_media`.
    """
    quick = DecodeLimits(
        max_media_s=limits.max_media_s,
        timeout_s=min(limits.timeout_s, _STALL_S),
        stall_s=min(limits.stall_s, _STALL_S),
        memory_bytes=limits.memory_bytes,
    )
    return read_media_info(path, limits=quick)
