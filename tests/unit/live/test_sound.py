"""Audio is read the same however it is cut, in every encoding."""

import io

import numpy as np
import pytest
import soundfile

from core.live import Encoding, NoiseReduction
from workers.live.denoise import FRAME_SAMPLES, NoiseFilter
from workers.live.sound import SoundReader

FORMATS = [
    (16_000, Encoding.PCM16),
    (24_000, Encoding.PCM16),
    (48_000, Encoding.PCM16),
    (8_000, Encoding.ULAW),
    (8_000, Encoding.ALAW),
]


@pytest.mark.parametrize(("rate_hz", "encoding"), FORMATS)
def test_samples_do_not_depend_on_how_the_bytes_are_cut(rate_hz: int, encoding: Encoding) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, rate_hz * encoding.sample_bytes, dtype=np.uint8).tobytes()
    whole = SoundReader(rate_hz, encoding)
    expected = np.concatenate((whole.read(data), whole.flush()))
    reader, parts, at = SoundReader(rate_hz, encoding), [], 0
    while at < len(data):
        size = encoding.sample_bytes * int(rng.integers(1, 900))
        parts.append(reader.read(data[at : at + size]))
        at += size
    heard = np.concatenate((*parts, reader.flush()))
    assert abs(len(expected) - 16_000) <= 1
    np.testing.assert_allclose(heard, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("encoding", "subtype"), [(Encoding.ULAW, "ULAW"), (Encoding.ALAW, "ALAW")]
)
def test_both_laws_of_telephony_are_read_as_libsndfile_reads_them(
    encoding: Encoding, subtype: str
) -> None:
    codes = bytes(range(256))
    expected, _ = soundfile.read(
        io.BytesIO(codes), samplerate=16_000, channels=1, subtype=subtype, format="RAW",
        dtype="float32",
    )  # fmt: skip
    np.testing.assert_array_equal(SoundReader(16_000, encoding).read(codes), expected)


def test_after_a_flush_a_new_stream_begins() -> None:
    reader = SoundReader(48_000, Encoding.PCM16)
    pcm = np.full(4_800, 10_000, "<i2").tobytes()
    first = np.concatenate((reader.read(pcm), reader.flush()))
    second = np.concatenate((reader.read(pcm), reader.flush()))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("reduction", list(NoiseReduction))
def test_noise_gets_quieter_and_no_sample_is_lost_however_it_is_cut(
    reduction: NoiseReduction,
) -> None:
    rng = np.random.default_rng(5)
    noise = (0.05 * rng.standard_normal(3 * 16_000 + 77)).astype(np.float32)
    whole = NoiseFilter(reduction)
    expected = np.concatenate((whole.read(noise), whole.flush()))
    cut, parts, at = NoiseFilter(reduction), [], 0
    while at < len(noise):
        size = int(rng.integers(1, 3 * FRAME_SAMPLES))
        parts.append(cut.read(noise[at : at + size]))
        at += size
    heard = np.concatenate((*parts, cut.flush()))
    np.testing.assert_array_equal(heard, expected)
    assert len(heard) == len(noise)
    late = slice(2 * 16_000, None)  # it has to learn the noise first
    assert np.std(heard[late]) < 0.6 * np.std(noise[late])
    assert len(cut.flush()) == 0
