"""PCM is read the same however it is cut."""

import numpy as np
import pytest

from workers.live.sound import PcmReader


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 48_000])
def test_samples_do_not_depend_on_how_the_bytes_are_cut(rate_hz: int) -> None:
    rng = np.random.default_rng(3)
    pcm = rng.integers(-20_000, 20_000, rate_hz, dtype=np.int16).astype("<i2").tobytes()
    whole = PcmReader(rate_hz)
    expected = np.concatenate((whole.read(pcm), whole.flush()))
    reader, parts, at = PcmReader(rate_hz), [], 0
    while at < len(pcm):
        size = 2 * int(rng.integers(1, 900))
        parts.append(reader.read(pcm[at : at + size]))
        at += size
    heard = np.concatenate((*parts, reader.flush()))
    assert abs(len(expected) - 16_000) <= 1
    np.testing.assert_allclose(heard, expected, atol=1e-6)


def test_after_a_flush_a_new_stream_begins() -> None:
    reader = PcmReader(48_000)
    pcm = np.full(4_800, 10_000, "<i2").tobytes()
    first = np.concatenate((reader.read(pcm), reader.flush()))
    second = np.concatenate((reader.read(pcm), reader.flush()))
    np.testing.assert_array_equal(first, second)
