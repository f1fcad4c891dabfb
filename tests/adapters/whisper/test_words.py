"""Word times on real speech."""

from collections.abc import Callable

import pytest

from adapters.base import Window
from adapters.whisper.runtime import WhisperRuntime
from core.options import Timestamps


def test_words_are_timed_where_they_are_spoken(
    whisper: WhisperRuntime, window: Callable[..., Window]
) -> None:
    [answer] = whisper.transcribe([window("en", timestamps=Timestamps.WORD)])
    words = [word for segment in answer.segments for word in segment.words]

    assert " ".join(word.text for word in words) == answer.text
    assert [word.text for word in words][:5] == ["And", "so", "my", "fellow", "Americans,"]
    # Where openai-whisper puts them with the same weights, within half a syllable.
    starts = {word.text.strip(",."): word.start_ms for word in reversed(words)}
    assert starts["fellow"] == pytest.approx(1180, abs=150)
    assert starts["country"] == pytest.approx(5760, abs=150)
    assert all(0 < (word.probability or 0) <= 1 for word in words)


@pytest.mark.parametrize("clip", ["en", "es", "ja", "sv"])
def test_words_follow_one_another_inside_their_segment(
    whisper: WhisperRuntime, window: Callable[..., Window], clip: str
) -> None:
    target = window(clip, timestamps=Timestamps.WORD)

    [answer] = whisper.transcribe([target])

    edge = 0
    for segment in answer.segments:
        assert segment.words
        assert segment.start_ms == segment.words[0].start_ms
        assert segment.end_ms == segment.words[-1].end_ms
        joined = "".join(word.text for word in segment.words)
        assert joined.replace(" ", "") == segment.text.replace(" ", "")
        assert "\ufffd" not in joined
        for word in segment.words:
            assert edge <= word.start_ms < word.end_ms <= target.duration_ms
            edge = word.end_ms


def test_asking_for_words_changes_no_text(
    whisper: WhisperRuntime, window: Callable[..., Window]
) -> None:
    plain, timed = whisper.transcribe([window("es"), window("es", timestamps=Timestamps.WORD)])

    assert plain.text == timed.text
