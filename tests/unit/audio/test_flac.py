import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from core.audio.flac import decode_flac, encode_flac

BITS_16, BITS_24 = 2.0**15, 2.0**23


@given(arrays(np.int16, st.integers(1, 3000)))
def test_sixteen_bit_samples_come_back_exactly(integers: np.ndarray) -> None:
    samples = (integers / BITS_16).astype(np.float32)
    np.testing.assert_array_equal(decode_flac(encode_flac(samples)), samples)


@given(arrays(np.float32, st.integers(1, 3000), elements=st.floats(-1, 1, width=32)))
def test_any_samples_come_back_within_half_a_step_of_24_bits(samples: np.ndarray) -> None:
    decoded = decode_flac(encode_flac(samples))
    assert decoded.dtype == np.float32
    assert np.abs(decoded - np.minimum(samples, 1 - 1 / BITS_24)).max() <= 0.5 / BITS_24 + 1e-9


@given(arrays(np.float32, st.integers(1, 500), elements=st.floats(-1, 1, width=32)))
def test_encoding_what_was_decoded_changes_nothing(samples: np.ndarray) -> None:
    once = decode_flac(encode_flac(samples))
    np.testing.assert_array_equal(decode_flac(encode_flac(once)), once)


def test_values_beyond_one_are_clipped() -> None:
    decoded = decode_flac(encode_flac(np.array([1.5, -1.5, 0.0], np.float32)))
    assert decoded == pytest.approx([1, -1, 0], abs=1e-6)


def test_quiet_speech_keeps_its_detail() -> None:
    quiet = (np.sin(np.arange(16_000) / 7) * 1e-4).astype(np.float32)
    noise = decode_flac(encode_flac(quiet)) - quiet
    assert np.square(noise).sum() < 1e-5 * np.square(quiet).sum()


def test_sixteen_bit_samples_take_a_16_bit_stream() -> None:
    rng = np.random.default_rng(0)
    integers = rng.integers(-20_000, 20_000, 16_000)
    exact = encode_flac((integers / BITS_16).astype(np.float32))
    finer = encode_flac(((integers + rng.random(16_000)) / BITS_16).astype(np.float32))
    assert len(exact) < 0.75 * len(finer)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_stream_cut_short_is_noticed(part: float) -> None:
    rng = np.random.default_rng(0)
    data = encode_flac(rng.uniform(-0.5, 0.5, 50_000).astype(np.float32))
    with pytest.raises(ValueError, match="FLAC"):
        decode_flac(data[: int(len(data) * part)])
