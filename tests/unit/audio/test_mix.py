import numpy as np
import pytest

from core.audio.mix import Limiter, Mixer

RATE_HZ = 16_000
rng = np.random.default_rng(0)
VOICE = (rng.standard_normal(4 * RATE_HZ) * 0.1).astype(np.float32)
OTHER = (rng.standard_normal(4 * RATE_HZ) * 0.1).astype(np.float32)
SILENCE = np.zeros_like(VOICE)


def mix(*channels: np.ndarray, block: int = RATE_HZ) -> np.ndarray:
    samples = np.stack(channels)
    mixer = Mixer(len(channels), RATE_HZ)
    return np.concatenate(
        [mixer.mix(samples[:, i : i + block]) for i in range(0, samples.shape[1], block)]
    )


def rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.square(samples).mean()))


def test_two_equal_channels_give_exactly_the_one() -> None:
    np.testing.assert_array_equal(mix(VOICE, VOICE), VOICE)


def test_opposite_channels_give_the_one() -> None:
    np.testing.assert_array_equal(mix(VOICE, -VOICE), VOICE)


def test_nearly_opposite_channels_do_not_cancel() -> None:
    assert rms(mix(VOICE, -0.8 * VOICE + 0.02 * OTHER)) > 0.7 * rms(VOICE)


@pytest.mark.parametrize("channels", [(SILENCE, VOICE), (VOICE, SILENCE)])
def test_a_dead_channel_leaves_the_other_as_it_is(channels: tuple[np.ndarray, ...]) -> None:
    np.testing.assert_array_equal(mix(*channels), VOICE)


def test_two_speakers_are_both_there_and_no_louder_than_one() -> None:
    mixed = mix(VOICE, OTHER)
    assert rms(mixed) == pytest.approx(rms(VOICE), rel=0.05)
    assert np.corrcoef(mixed, VOICE)[0, 1] == pytest.approx(
        np.corrcoef(mixed, OTHER)[0, 1], abs=0.1
    )
    assert np.corrcoef(mixed, VOICE)[0, 1] > 0.6


def test_channels_that_turn_against_each_other_midway_never_vanish() -> None:
    half = len(VOICE) // 2
    right = np.concatenate((VOICE[:half], -VOICE[half:]))
    mixed = mix(VOICE, right)
    turn = slice(half, half + RATE_HZ * 3 // 2)
    assert rms(mixed[: half - 1600]) == pytest.approx(rms(VOICE), rel=0.05)
    assert rms(mixed[turn.stop :]) == pytest.approx(rms(VOICE), rel=0.05)


def test_six_channels_with_one_voice_keep_its_level() -> None:
    mixed = mix(SILENCE, SILENCE, VOICE, SILENCE, SILENCE, SILENCE)
    np.testing.assert_array_equal(mixed, VOICE)


def limit(samples: np.ndarray, block: int = 5_000) -> np.ndarray:
    limiter = Limiter(RATE_HZ)
    parts = [limiter.push(samples[i : i + block]) for i in range(0, len(samples), block)]
    return np.concatenate([*parts, limiter.flush()])


@pytest.mark.parametrize("block", [1, 1600, 1601, 100_000])
def test_samples_without_high_peaks_pass_unchanged(block: int) -> None:
    samples = np.clip(VOICE[:20_000] * 3, -1, 1)
    np.testing.assert_array_equal(limit(samples, block), samples)


def test_high_peaks_are_turned_down_without_clipping_and_only_there() -> None:
    samples = VOICE.copy()
    samples[30_000:31_000] *= 10
    limited = limit(samples)
    assert len(limited) == len(samples)
    assert np.abs(limited).max() <= 1.0
    np.testing.assert_array_equal(limited[:25_000], samples[:25_000])
    np.testing.assert_array_equal(limited[-2_000:], samples[-2_000:])
    loud = slice(30_000, 31_000)
    assert np.corrcoef(limited[loud], samples[loud])[0, 1] > 0.99


def test_what_the_limiter_gives_does_not_depend_on_blocks() -> None:
    samples = VOICE * 15
    np.testing.assert_array_equal(limit(samples, 777), limit(samples, 50_000))


def test_nothing_in_is_nothing_out() -> None:
    assert limit(np.empty(0, np.float32)).shape == (0,)
