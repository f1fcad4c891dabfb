"""Reads the audio of any container with FFmpeg's libraries (PyAV), one block at a time.

Runs in the decoding child only. Nothing but the given file can be opened: only demuxers of
single-file containers are allowed (playlists, concatenations, image sequences and network
descriptions are not), no protocol is, and of the codecs only those for audio.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

import av
import numpy as np
from av.codec import Codec
from av.container import InputContainer
from numpy.typing import NDArray

from core.audio.media import MediaInfo
from core.audio.riff import Corrected, correct, is_mono
from core.errors import MediaEmpty, MediaHasNoAudio, MediaUndecodable

Floats = NDArray[np.float32]

# libavformat's names. Left out on purpose: whatever may open other files or addresses (hls, dash,
# concat, image2, sdp, rtsp, vobsub, imf, ffmetadata …), raw formats that are recognised by name
# alone, games' containers.
DEMUXERS = (
    "aa,aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,avr,caf,dsf,dss,dts,dtshd,dv,eac3,epaf,flac,"
    "flv,gsm,gxf,iff,ilbc,ircam,ivr,kux,loas,matroska,mlp,mov,mp3,mpc,mpc8,mpeg,mpegts,mxf,"
    "nistsphere,nsv,nut,ogg,oma,paf,pvf,qcp,rm,rso,sbc,sds,shn,sox,svx,swf,tak,truehd,tta,voc,vqf,"
    "w64,wav,wsd,wtv,wv,wve,xwma"
)
_DISCARD_ABOVE = np.float32(1e10)  # no recorder's scale reaches this: corrupt, like NaN
_RIFX = b"RIFX"
_ZIP, _EBML = b"PK\x03\x04", b"\x1a\x45\xdf\xa3"

# Containers in which a packet's time is the recorder's clock: a hole in it (a muted microphone,
# lost packets) is time that passed, and leaving it out would shift all that follows.
_TIMED_CONTAINERS = ("matroska", "mov")
_MIN_RATE_HZ = 1000
"""Below, no sound of speech fits between two samples, and a small file claims to last for days."""

_MIN_HOLE_S = 0.25
_MAX_CLAIMED_US = 30 * 24 * 3600 * 1_000_000  # a month: longer claims are no recording's
_MAX_HOLE_S = 3600  # where the container does not say how long it is


@dataclass(frozen=True, slots=True)
class Block:
    """Some audio at its own rate: `samples` has shape (num_channels, n), nominally in [-1, 1]."""

    samples: Floats
    sample_rate_hz: int


MAX_CLAIMED_US = 30 * 24 * 3600 * 1_000_000
"""A month: longer claims are no recording's."""


class MediaSource:
    """One opened media and the audio track chosen in it.

    Attributes:
        is_damaged: Whether, so far, packets were left out because they cannot be decoded, NaN,
            infinite or absurd samples were replaced by zero, the container broke off, or its
            header told of less sound than there is.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Open a seekable `file`.

        Raises:
            MediaEmpty: There are no bytes, or a header and nothing after it.
            MediaHasNoAudio: It is a container without an audio track that can be decoded.
            MediaUndecodable: It is no container that is known here, or a broken one.
        """
        self._num_good = 0
        head = file.read(16)
        file.seek(0)
        if not head:
            raise MediaEmpty("the file has no bytes")
        corrected = correct(file)
        self.is_damaged = corrected is not None and corrected.is_damaged
        self._container = _open_container(corrected or file, head, may_hide_codec=not is_mono(file))
        tracks = list(self._container.streams.audio)
        if not tracks:
            raise MediaHasNoAudio("the file has no audio track")
        # PyAV's types hide it: a track without a decoder has no codec context.
        usable = [track for track in tracks if getattr(track, "codec_context", None)]
        if not usable:
            raise MediaUndecodable("the codec of the audio track is not supported")
        default = [t for t in usable if t.disposition & av.stream.Disposition.default]
        self._track = (default or usable)[0]
        self._track.codec_context.thread_count = 1
        self._num_tracks = len(tracks)
        # FFmpeg takes the samples of a big-endian WAV for little-endian ones.
        self._is_swapped = head.startswith(_RIFX)
        if self._is_swapped and self._track.codec_context.name != "pcm_s16le":
            raise MediaUndecodable("a big-endian WAV (RIFX) is read with 16-bit samples only")
        self._length_s = (self._container.duration or 0) / av.time_base
        self._is_timed = self._container.format.name.startswith(_TIMED_CONTAINERS)

    def get_info(self, first: Block) -> MediaInfo:
        """Describe the media; `first` is its first block."""
        return MediaInfo(
            codec=self._track.codec_context.codec.canonical_name,
            container=self._container.format.name,
            sample_rate_hz=first.sample_rate_hz,
            num_channels=len(first.samples),
            num_tracks=self._num_tracks,
            track_index=self._track.index,
            start_ms=self._find_start_ms(),
            claimed_ms=_claimed_ms(self._container.duration),
        )

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of about a second until the end, skipping packets that are damaged.

        Raises:
            MediaEmpty: There was not one sample.
            MediaUndecodable: There was something, and none of it could be decoded.
        """
        parts: list[Floats] = []
        rate_hz = num_channels = num_samples = 0
        for block in self._iter_frames():
            same = (rate_hz, num_channels) == (block.sample_rate_hz, len(block.samples))
            if parts and (not same or num_samples >= rate_hz):
                yield Block(np.concatenate(parts, axis=1), rate_hz)
                parts, num_samples = [], 0
            rate_hz, num_channels = block.sample_rate_hz, len(block.samples)
            parts.append(block.samples)
            num_samples += block.samples.shape[1]
        if parts:
            yield Block(np.concatenate(parts, axis=1), rate_hz)
        if not self._num_good and self.is_damaged:
            raise MediaUndecodable("none of the audio in the file can be decoded")
        if not self._num_good:
            raise MediaEmpty("the file holds an audio track without any audio in it")

    def iter_from(self, part: float) -> Iterator[Block]:
        """Yield what comes from about `part` (0 to 1) of the claimed length on, frame by frame.

        Nothing where the container cannot be searched or the claim is wrong.
        """
        begin = self._container.start_time or 0
        try:
            self._container.seek(begin + round(part * self._length_s * av.time_base))
        except (av.error.FFmpegError, EOFError):
            return
        yield from self._iter_frames()

    def _iter_frames(self) -> Iterator[Block]:
        end_s: float | None = None
        for frame in self._iter_decoded():
            if frame.sample_rate < _MIN_RATE_HZ:
                raise MediaUndecodable(f"{frame.sample_rate} samples a second hold no speech")
            samples = _to_floats(frame, is_swapped=self._is_swapped)
            block = Block(self._clean(samples), frame.sample_rate)
            if self._is_timed and frame.time is not None:
                if end_s is not None:
                    yield from self._fill(frame.time - end_s, block)
                end_s = frame.time + frame.samples / frame.sample_rate
            yield block

    def _iter_decoded(self) -> Iterator[av.AudioFrame]:
        packets = self._container.demux(self._track)
        while True:
            try:
                packet = next(packets, None)
            except (av.error.FFmpegError, EOFError):
                self.is_damaged = True
                packet = None
            try:
                frames = self._track.decode(packet)
            except (av.error.FFmpegError, EOFError):
                # A damaged packet must not end the recording; FFmpeg's tools go on as well.
                self.is_damaged = self.is_damaged or packet is not None
                frames = []
            yield from (frame for frame in frames if frame.samples and frame.sample_rate > 0)
            if packet is None or packet.size == 0:
                return  # the empty packet flushed the decoder

    def _fill(self, hole_s: float, after: Block) -> Iterator[Block]:
        """Yield silence for a hole of `hole_s`, if that is believable."""
        if not _MIN_HOLE_S < hole_s < (self._length_s or _MAX_HOLE_S):
            return
        missing = round(hole_s * after.sample_rate_hz)
        while missing > 0:
            part = min(missing, after.sample_rate_hz)
            yield Block(np.zeros((len(after.samples), part), np.float32), after.sample_rate_hz)
            missing -= part

    def _clean(self, samples: Floats) -> Floats:
        # One NaN turns every Whisper feature of its window into NaN.
        self._num_good += samples.size
        if not np.abs(samples).max() < _DISCARD_ABOVE:
            good = np.abs(samples) < _DISCARD_ABOVE
            self.is_damaged = True
            self._num_good -= int((~good).sum())
            samples = np.where(good, samples, np.float32(0))
        return samples

    def _find_start_ms(self) -> int:
        starts = [
            float(stream.start_time * stream.time_base)
            for stream in self._container.streams
            if stream.type in ("audio", "video")
            and stream.start_time is not None
            and stream.time_base is not None
            and not stream.disposition & av.stream.Disposition.attached_pic
        ]
        own = self._track.start_time
        if own is None or self._track.time_base is None:
            return 0
        # Against the earliest track and not against zero: an MPEG-TS clock starts anywhere.
        offset_s = float(own * self._track.time_base) - min(starts)
        is_believable = 0 < offset_s < (self._length_s or _MAX_HOLE_S)
        return round(offset_s * 1000) if is_believable else 0


def _open_container(
    file: BinaryIO | Corrected, head: bytes, *, may_hide_codec: bool
) -> InputContainer:
    """Open `file`, which begins with `head`.

    Args:
        may_hide_codec: Let FFmpeg look for DTS and its like in 16-bit WAV, which takes 4 ms. They
            come as two channels (IEC 61937).
    """
    options = {
        "format_whitelist": DEMUXERS,
        "protocol_whitelist": "none",
        "codec_whitelist": _audio_decoders(),
    }
    if not may_hide_codec:
        options["max_probe_packets"] = "1"
    try:
        # A file object, not a name: FFmpeg guesses by extension and reads "concat:", "http:".
        return av.open(file, mode="r", options=options, metadata_errors="replace")
    except (av.error.FFmpegError, EOFError, ValueError) as exc:
        if head.startswith(_EBML) and isinstance(exc, EOFError):
            raise MediaEmpty("the file is a WebM/Matroska header without any audio") from exc
        if head.startswith(_ZIP):
            raise MediaUndecodable("the file is a ZIP archive, not audio") from exc
        if head[4:8] in (b"ftyp", b"mdat", b"wide", b"free", b"skip") and not _has_moov(file):
            raise MediaUndecodable(
                "the file is incomplete: its index (the moov atom) is missing; it was probably cut "
                "off while being recorded or uploaded"
            ) from exc
        raise MediaUndecodable("the file is not in an audio or video format known here") from exc


@cache  # asking 500 codecs takes 2 ms; forked children have the answer from `warm_up`
def _audio_decoders() -> str:
    """Return the names of all decoders for audio as FFmpeg's options take them."""
    names = []
    for name in sorted(av.codecs_available):
        with contextlib.suppress(ValueError):  # encoders have no decoder of that name
            if Codec(name, "r").type == "audio":
                names.append(name)
    return ",".join(names)


def _has_moov(file: BinaryIO | Corrected) -> bool:
    """Whether the MP4/QuickTime boxes at top level include a whole `moov`."""
    end = file.seek(0, 2)
    position = 0
    while position + 8 <= end:
        file.seek(position)
        header = file.read(16)
        size = int.from_bytes(header[:4], "big")
        if size == 1:
            size = int.from_bytes(header[8:16], "big")
        if header[4:8] == b"moov":
            return position + size <= end
        if size < 8:
            return False
        position += size
    return False


def _to_floats(frame: av.AudioFrame, *, is_swapped: bool) -> Floats:
    raw = frame.to_ndarray()
    if is_swapped:
        raw = raw.byteswap()
    if not frame.format.is_planar:
        raw = raw.reshape(-1, frame.layout.nb_channels).T
    if raw.dtype == np.uint8:
        return (raw.astype(np.float32) - np.float32(128)) / np.float32(128)
    if raw.dtype.kind == "i":
        # Exact for 16 bits; a power of two keeps that through FLAC and back.
        return raw.astype(np.float32) * np.float32(2.0 ** (1 - 8 * raw.dtype.itemsize))
    with np.errstate(over="ignore", invalid="ignore"):
        return raw.astype(np.float32)


def _claimed_ms(duration_us: int | None) -> int | None:
    """Return a container's duration; broken headers have absurd ones, which say nothing."""
    if duration_us is None or not 0 < duration_us <= _MAX_CLAIMED_US:
        return None
    return duration_us // 1000
