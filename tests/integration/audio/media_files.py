"""Media made for tests: what can be derived from the kept files, and encodings of any kind."""

import io
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import soundfile as sf

DATA = Path(__file__).resolve().parents[2] / "data" / "media"
RATE_HZ = 16_000


def sentence_a() -> np.ndarray:
    """7.1 s of speech, 8 kHz telephone quality, int16 at 8 kHz."""
    return sf.read(DATA / "wav_mulaw_8k.wav", dtype="int16")[0]


def sentence_b() -> np.ndarray:
    """2.99 s of speech, int16 at 16 kHz."""
    return sf.read(DATA / "aiff_s16be.aiff", dtype="int16")[0]


def make_case(name: str, folder: Path) -> Path:
    """Return the case file `name`: the kept one, or one made in `folder`."""
    kept = DATA / name
    if kept.exists():
        return kept
    path = folder / name
    _RECIPES[name](path)
    return path


def wav_bytes(
    data: bytes,
    *,
    rate_hz: int = RATE_HZ,
    num_channels: int = 1,
    bits: int = 16,
    tag: int = 1,
    riff_size: int | None = None,
    data_size: int | None = None,
) -> bytes:
    """Return a WAV whose header may lie about its sizes."""
    block = num_channels * bits // 8
    return struct.pack(
        "<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(data) if riff_size is None else riff_size,
        b"WAVEfmt ", 16, tag, num_channels, rate_hz, rate_hz * block, block, bits, b"data",
        len(data) if data_size is None else data_size,
    ) + data  # fmt: skip


def encode(
    path: Path,
    container: str,
    codec: str,
    *,
    rate_hz: int = RATE_HZ,
    layout: str = "mono",
    samples: np.ndarray | None = None,
    start_s: float = 0.0,
    hole: tuple[float, float] | None = None,
    video_s: float = 0.0,
) -> float:
    """Write speech into `container` and return its duration in seconds.

    Args:
        samples: int16 at 16 kHz, shape (n,); sentence B by default.
        start_s: The audio starts that much later than time zero.
        hole: From which second on times are that many seconds later, without audio between.
        video_s: Length of a test picture that starts at zero.
    """
    source = sentence_b() if samples is None else samples
    with av.open(str(path), "w", format=container) as out:
        if video_s:
            picture = out.add_stream("mpeg4", rate=10, width=32, height=32, pix_fmt="yuv420p")
        stream = out.add_stream(codec, rate=rate_hz, layout=layout)
        if codec.startswith("wma"):
            stream.bit_rate = 64_000  # it has no default
        stream.codec_context.open()
        if video_s:
            for index in range(int(video_s * 10)):
                grey = np.full((48, 32), index % 255, np.uint8)
                image = av.VideoFrame.from_ndarray(grey, format="yuv420p")
                image.pts, image.time_base = index, Fraction(1, 10)
                out.mux(picture.encode(image))
            out.mux(picture.encode(None))
        position = 0
        for frame in _frames(source, stream.codec_context, rate_hz, layout):
            late_s = start_s
            if hole is not None and position >= hole[0] * rate_hz:
                late_s += hole[1]
            frame.time_base = Fraction(1, rate_hz)
            frame.pts = position + round(late_s * rate_hz)
            position += frame.samples
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return len(source) / RATE_HZ


def _frames(
    source: np.ndarray, codec: av.AudioCodecContext, rate_hz: int, layout: str
) -> Iterable[av.AudioFrame]:
    frame = av.AudioFrame.from_ndarray(source[None], format="s16", layout="mono")
    frame.sample_rate = RATE_HZ
    resampler = av.AudioResampler(codec.format.name, layout, rate_hz)
    fifo = av.AudioFifo()
    for part in (*resampler.resample(frame), *resampler.resample(None)):
        part.pts = None
        fifo.write(part)
    while (part := fifo.read(codec.frame_size or 1024, partial=True)) is not None:
        yield part


def _write(make: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(make())


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("recording.wav", wav_bytes(sentence_b().tobytes()))
    return out.getvalue()


def _floats() -> np.ndarray:
    return sentence_b() / np.float32(32768)


def _with_nan() -> np.ndarray:
    samples = _floats()
    samples[[1000, 20000, 30000]] = np.nan
    samples[[5000, 40000]] = np.inf, -np.inf
    return samples


def _stereo(left: float, right: float) -> np.ndarray:
    samples = _floats() * np.float32(0.9)
    return np.stack([samples * np.float32(left), samples * np.float32(right)], axis=1)


def _huge_id3() -> bytes:
    body = b"PRIV" + (260_000).to_bytes(4, "big") + b"\0\0" + b"\0" * 260_000
    size = len(body)
    syncsafe = bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))
    mp3 = (DATA / "mp3_art_mislabelled.mp3").read_bytes()
    tag_size = sum(byte << shift for byte, shift in zip(mp3[6:10], (21, 14, 7, 0), strict=True))
    return b"ID3\x03\0\0" + syncsafe + body + mp3[10 + tag_size :]


def _resampled(path: Path, rate_hz: int, layout: str, codec: str) -> None:
    speech = sf.read(DATA / "noextension", dtype="int16")[0]
    samples = np.pad(speech, (0, int(1.538 * RATE_HZ) - len(speech)))
    encode(path, "wav", codec, rate_hz=rate_hz, layout=layout, samples=samples)


def _first(part: float, name: str) -> bytes:
    data = (DATA / name).read_bytes()
    return data[: int(len(data) * part)]


def _sizes(size: int) -> bytes:
    sentence = np.repeat(sentence_a(), 2).tobytes()
    return wav_bytes(sentence, riff_size=size, data_size=size)


_RECIPES: dict[str, Callable[[Path], object]] = {
    "m4a_truncated_no_moov.m4a": _write(lambda: _first(0.6, "m4a_moov_at_end.m4a")),
    "mp3_huge_id3.mp3": _write(_huge_id3),
    "stereo_antiphase.wav": lambda path: sf.write(path, _stereo(1, -1), RATE_HZ),
    "stereo_left_dead.wav": lambda path: sf.write(path, _stereo(0, 1), RATE_HZ),
    "wav_96k_24bit.wav": lambda path: _resampled(path, 96_000, "mono", "pcm_s24le"),
    "wav_extensible_24bit_48k_stereo.wav": (
        lambda path: _resampled(path, 48_000, "stereo", "pcm_s24le")
    ),
    "wav_float32_44k.wav": lambda path: _resampled(path, 44_100, "mono", "pcm_f32le"),
    "wav_float64.wav": lambda path: sf.write(path, _floats(), RATE_HZ, subtype="DOUBLE"),
    "wav_float_few_nan.wav": lambda path: sf.write(path, _with_nan(), RATE_HZ, subtype="FLOAT"),
    "wav_float_quiet.wav": lambda path: sf.write(path, _floats() * 0.01, RATE_HZ, subtype="FLOAT"),
    "wav_header_only.wav": _write(lambda: wav_bytes(b"")),
    "wav_odd_bytes.wav": _write(lambda: wav_bytes(sentence_b().tobytes() + b"x")),
    "wav_s32.wav": lambda path: sf.write(path, _floats(), RATE_HZ, subtype="PCM_32"),
    "wav_size_7fffffff.wav": _write(lambda: _sizes(0x7FFFFFFF)),
    "wav_size_ffffffff.wav": _write(lambda: _sizes(0xFFFFFFFF)),
    "zero_bytes.wav": _write(bytes),
    "zip_renamed.m4a": _write(_zip),
    "会議 録音.wav": lambda path: shutil.copy(DATA / "noextension", path),
}  # fmt: skip
