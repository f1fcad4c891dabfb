"""What the samples alone say of a window."""

import numpy as np
import pytest

from adapters.whisper.sound import (
    fingerprint,
    is_audible,
    loud_until_ms,
    split_at_pauses,
    split_samples,
)

RATE = 16_000


def tone(seconds: float, level: float = 0.3) -> np.ndarray:
    return (level * np.sin(np.arange(int(seconds * RATE)) * 0.2)).astype(np.float32)


def test_digital_silence_is_not_audible_and_a_whisper_is() -> None:
    assert not is_audible(np.zeros(RATE, np.float32))
    assert not is_audible(tone(1, 5e-5))
    assert is_audible(tone(1, 1e-3))


@pytest.mark.parametrize("background", [0.0, 0.005])
def test_background_after_speech_does_not_count_as_heard(background: float) -> None:
    samples = np.concatenate([tone(6), tone(10, background)])

    assert loud_until_ms(samples) == pytest.approx(6000, abs=500)


def test_sound_to_the_end_is_heard_to_the_end() -> None:
    samples = np.concatenate([tone(6), tone(3, 0.0), tone(4.2, 0.1)])

    assert loud_until_ms(samples) == 13_200


def test_a_cut_falls_in_the_pause_and_loses_no_sample() -> None:
    samples = np.concatenate([tone(5), tone(0.3, 0.0), tone(5)])

    parts = split_samples(samples)

    assert parts is not None
    assert 5 * RATE <= len(parts[0]) <= 5.3 * RATE
    assert np.array_equal(np.concatenate(parts), samples)


def test_what_is_too_short_is_not_cut() -> None:
    assert split_samples(tone(3.9)) is None


def test_parts_are_what_is_heard_between_pauses_of_half_a_second() -> None:
    samples = np.concatenate([tone(3), tone(0.4, 0.01), tone(3), tone(1, 0.01), tone(5)])

    (first, before), (second, after) = split_at_pauses(samples)

    assert first == 0
    assert len(before) == pytest.approx(6.4 * RATE, abs=0.3 * RATE)
    assert second == pytest.approx(7.4 * RATE, abs=0.3 * RATE)
    assert np.array_equal(after, samples[second:])


@pytest.mark.parametrize("seconds", [(1, 3), (3, 1)])
def test_a_part_of_a_second_stays_with_its_neighbour(seconds: tuple[int, int]) -> None:
    samples = np.concatenate([tone(seconds[0]), tone(1, 0.01), tone(seconds[1])])

    [(first, part)] = split_at_pauses(samples)

    assert first == 0
    assert np.array_equal(part, samples)


def test_equal_sound_has_equal_marks() -> None:
    assert fingerprint(tone(1)) == fingerprint(tone(1).copy())
    assert fingerprint(tone(1)) != fingerprint(tone(1.01))
