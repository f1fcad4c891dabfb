"""A few places of a long media, heard without decoding what is between."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from core.audio.excerpts import EXCERPT_MS, NUM_EXCERPTS, find_speech
from core.audio.media import DecodeLimits
from tests.integration.audio.media_files import RATE_HZ, sentence_a

MEDIA_S = 250


def write(path: Path, samples: np.ndarray) -> Path:
    """Write block by block: libsndfile's Vorbis encoder overflows its stack on long ones."""
    with sf.SoundFile(path, "w", RATE_HZ, 1) as file:
        for first in range(0, len(samples), RATE_HZ):
            file.write(samples[first : first + RATE_HZ])
    return path


def speech(seconds: float) -> np.ndarray:
    sentence = np.concatenate([sentence_a(), np.zeros(RATE_HZ // 4, np.int16)])
    return np.resize(sentence, int(seconds * RATE_HZ))


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg", "a.mp3"])
def test_speech_is_found_all_over_a_long_media(tmp_path: Path, name: str) -> None:
    # Louder from fifth to fifth, so that each excerpt tells where it is from.
    steps = np.repeat(0.2 * np.arange(1, 6), MEDIA_S // 5 * RATE_HZ)
    path = write(tmp_path / name, (speech(MEDIA_S) * steps).astype(np.int16))

    excerpts = find_speech(path, DecodeLimits())

    assert [len(excerpt) for excerpt in excerpts] == [EXCERPT_MS * RATE_HZ // 1000] * NUM_EXCERPTS
    levels = np.array([float(np.abs(excerpt).mean()) for excerpt in excerpts])
    np.testing.assert_allclose(levels / levels[-1], 0.2 * np.arange(1, 6), rtol=0.15)


def test_a_few_silent_places_are_left_out_and_many_leave_nothing(tmp_path: Path) -> None:
    fifth = MEDIA_S // 5
    silence, voice = np.zeros(fifth * RATE_HZ, np.int16), speech(fifth)
    mostly = write(tmp_path / "a.flac", np.concatenate([silence, voice, voice, voice, silence]))
    hardly = write(tmp_path / "b.flac", np.concatenate([silence, voice, silence, voice, silence]))

    assert len(find_speech(mostly, DecodeLimits())) == 3
    assert find_speech(hardly, DecodeLimits()) == []


def test_short_cut_off_and_broken_media_have_none(tmp_path: Path) -> None:
    short = write(tmp_path / "short.flac", speech(60))
    whole = write(tmp_path / "whole.wav", speech(MEDIA_S)).read_bytes()
    cut = tmp_path / "cut.wav"
    cut.write_bytes(whole[: len(whole) // 5])
    broken = tmp_path / "broken.mp3"
    broken.write_bytes(b"no audio at all" * 1000)

    for path in (short, cut, broken):
        assert find_speech(path, DecodeLimits()) == []
