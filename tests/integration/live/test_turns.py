"""Turns by a detector of speech: real speech, cut any way, with nothing lost between turns."""

import numpy as np
import pytest

from core.live import TurnRules
from tests.integration.live.conftest import read_speech
from workers.live.turns import Begun, DetectedTurns, Ended, Heard


def cut(samples: np.ndarray, sizes: int | list[int], rules: TurnRules) -> list[tuple]:
    """Return (start_ms, end_ms, samples) of each turn."""
    taker = DetectedTurns(rules, 0)
    events, at = [], 0
    rng = np.random.default_rng(7)
    while at < len(samples):
        size = sizes if isinstance(sizes, int) else int(rng.integers(*sizes))
        events += taker.feed(samples[at : at + size])
        at += size
    events += taker.end()
    turns: list[tuple] = []
    for event in events:
        if isinstance(event, Begun):
            turns.append((event.at_ms, None, []))
        elif isinstance(event, Heard):
            turns[-1][2].append(event.samples)
        else:
            assert isinstance(event, Ended)
            turns[-1] = (turns[-1][0], event.at_ms, np.concatenate(turns[-1][2]))
    return turns


@pytest.fixture
def talk() -> np.ndarray:
    """Three turns with pauses of a second and a half between them."""
    word, pause = read_speech(), np.zeros(24_000, np.float32)
    return np.concatenate((pause, word, pause, word, pause, word))


def test_each_turn_is_the_audio_between_its_times(talk: np.ndarray) -> None:
    turns = cut(talk, 1_600, TurnRules())
    assert len(turns) == 3
    for start_ms, end_ms, samples in turns:
        np.testing.assert_array_equal(samples, talk[start_ms * 16 : start_ms * 16 + len(samples)])
        assert abs(len(samples) - (end_ms - start_ms) * 16) <= 16
    # Where the words are, with 300 ms before; half a second after, but for the end of the audio.
    word_ms = len(read_speech()) // 16
    for number, (start_ms, end_ms, _) in enumerate(turns):
        word_at = 1_500 + number * (word_ms + 1_500)
        assert word_at - 400 <= start_ms <= word_at + 200
        assert end_ms <= word_at + word_ms + 700
    assert turns[-1][1] == round(len(talk) / 16)


def test_turns_do_not_depend_on_how_the_audio_comes(talk: np.ndarray) -> None:
    expected = [turn[:2] for turn in cut(talk, len(talk), TurnRules())]
    for sizes in (160, 4_001, [1, 5_000]):
        assert [turn[:2] for turn in cut(talk, sizes, TurnRules())] == expected


def test_longer_silence_joins_turns_and_silence_makes_none(talk: np.ndarray) -> None:
    assert len(cut(talk, 1_600, TurnRules(silence_ms=4_000))) == 1
    assert cut(np.zeros(80_000, np.float32), 1_600, TurnRules()) == []
