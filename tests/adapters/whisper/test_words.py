"""Word times on real speech."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from adapters.base import Window
from adapters.whisper.alignment import WordTimer
from adapters.whisper.runtime import WhisperRuntime
from adapters.whisper.segments import split_unfinished
from adapters.whisper.vocabulary import Vocabulary
from core.options import TaskKind, Timestamps
from core.transcript import Segment


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


class Looking:
    """A network whose heads look 400 ms further for every token."""

    late_heads = ((0, 0),)

    def align(
        self, encoded: torch.Tensor, tokens: Sequence[int], _heads: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.zeros(1, len(tokens), len(encoded))
        for number in range(len(tokens)):
            scores[0, number, 20 * number : 20 * number + 20] = 9.0
        return scores, torch.zeros(len(tokens), max(tokens) + 1)


@pytest.mark.parametrize("until_ms", [2000, 1500, 1100])
def test_no_word_ends_where_the_window_is_read_again(checkpoint: Path, until_ms: int) -> None:
    vocabulary = Vocabulary.from_folder(checkpoint)
    text = "the men in the house"
    tokens = tuple(vocabulary.tokenizer.encode(f" {text}", add_special_tokens=False).ids)
    segment = Segment(text=text, start_ms=0, end_ms=until_ms, tokens=tokens)

    def time(until_ms: int | None) -> Segment:
        [timed] = WordTimer(cast(Any, Looking()), vocabulary).time(
            [segment],
            torch.zeros(500, 8),
            language="en",
            task=TaskKind.TRANSCRIBE,
            duration_ms=10_000,
            until_ms=until_ms,
        )
        return timed

    assert time(None).end_ms > until_ms
    timed = time(until_ms)
    assert [word.text for word in timed.words] == text.split()
    assert timed.end_ms == timed.words[-1].end_ms <= until_ms
    assert all(word.start_ms < word.end_ms for word in timed.words)


def test_words_of_what_stands_end_before_the_second_reading(
    whisper: WhisperRuntime, window: Callable[..., Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = [3000]

    def unfinished(
        tokens: Sequence[int], *, timestamp_begin: int
    ) -> tuple[Sequence[int], int | None]:
        if resume:
            return tokens[:8], resume.pop()  # the last of them is spoken after that
        return split_unfinished(tokens, timestamp_begin=timestamp_begin)

    monkeypatch.setattr("adapters.whisper.runtime.split_unfinished", unfinished)
    [answer] = whisper.transcribe([window("en", timestamps=Timestamps.WORD)])
    words = [word for segment in answer.segments for word in segment.words]
    assert len(answer.segments) > 1
    assert any(word.end_ms == 3000 for word in words)
    assert all(left.end_ms <= right.start_ms for left, right in pairwise(words))
