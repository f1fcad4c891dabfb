"""What decoding media is bounded by and what it finds; plain values, shared with the child."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from core.settings import Settings

MAX_SPLIT_CHANNELS = 16
"""Most channels that `channels=split` keeps; the rest of such a recording is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    """What one decode may cost.

    Attributes:
        max_media_s: Longest decoded audio.
        timeout_s: Most CPU time of the decoder, and most time spent waiting for it.
        stall_s: Longest wait for the decoder's next block.
        memory_bytes: Address space of the decoder's process (where the system enforces it).
    """

    max_media_s: int = 24 * 3600
    timeout_s: int = 3600
    stall_s: int = 60
    memory_bytes: int = 2 * 1024**3

    @classmethod
    def from_settings(cls, settings: "Settings") -> Self:
        """Return the limits that the service's settings ask for."""
        return cls(
            max_media_s=settings.max_media_s,
            timeout_s=settings.decode_timeout_s,
            memory_bytes=settings.decode_memory_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaInfo:
    """What is known of a media once its first audio is decoded; no header is believed further.

    Attributes:
        codec: libavcodec's name, e.g. "opus".
        container: libavformat's name, e.g. "matroska,webm".
        sample_rate_hz: Of the first decoded audio.
        num_channels: Of the first decoded audio.
        num_tracks: Audio tracks in the container.
        track_index: Which of the container's streams is read: the first audio track with the
            default flag, else the first that can be decoded.
        start_ms: How long the audio starts after the container's first track (the picture). The
            decoded stream begins with that much silence, so sample times are media times.
        claimed_ms: Length as the header has it, None if it says nothing: good for estimates and
            limits, believed nowhere else.
    """

    codec: str
    container: str
    sample_rate_hz: int
    num_channels: int
    num_tracks: int
    track_index: int
    start_ms: int
    claimed_ms: int | None = None
