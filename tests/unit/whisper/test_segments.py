"""Timestamp tokens become segments: vectors from FACTS and from the three vocabularies."""

import pytest

from adapters.whisper.segments import (
    Rest,
    Span,
    append,
    cut_spans,
    find_rest,
    split_unfinished,
)
from core.transcript import Hypothesis, Segment

# English-only, multilingual, large-v3.
FIRST_TIMESTAMPS = (50363, 50364, 50365)


def cut(tokens: list[int], *, first: int = 50364, duration_ms: int = 30_000) -> list[Span]:
    return cut_spans(tokens, timestamp_begin=first, end=50257, duration_ms=duration_ms)


@pytest.mark.parametrize("first", FIRST_TIMESTAMPS)
def test_text_up_to_a_timestamp_starts_with_the_window(first: int) -> None:
    assert cut([100, 101, first + 250], first=first) == [Span((100, 101), 0, 5000)]


def test_an_unclosed_segment_ends_with_the_window() -> None:
    assert cut([200, 50364 + 100, 300], duration_ms=29_300) == [
        Span((200,), 0, 2000),
        Span((300,), 2000, 29_300),
    ]


def test_text_without_timestamps_has_the_bounds_of_the_window() -> None:
    assert cut([1, 2, 3], duration_ms=7_123) == [Span((1, 2, 3), 0, 7_123)]


def test_pairs_leave_the_pause_between_two_segments_out() -> None:
    tokens = [50364, 10, 50364 + 50, 50364 + 75, 11, 50364 + 100]
    assert cut(tokens) == [Span((10,), 0, 1000), Span((11,), 1500, 2000)]


def test_times_in_the_padding_are_clamped_to_the_window() -> None:
    assert cut([50364, 10, 50364 + 1400], duration_ms=5_010) == [Span((10,), 0, 5_010)]


def test_times_never_go_back() -> None:
    tokens = [50364 + 100, 10, 50364 + 50, 50364 + 20, 11, 50364 + 200]
    assert cut(tokens) == [Span((10,), 2000, 2000), Span((11,), 2000, 4000)]


def test_no_tokens_are_no_segments() -> None:
    assert cut([]) == []
    assert cut([50364, 50364 + 10]) == []


def answer(*times: tuple[int, int]) -> Hypothesis:
    return Hypothesis(
        segments=tuple(Segment(text="x", start_ms=start, end_ms=end) for start, end in times)
    )


def rest(
    answer: Hypothesis, resume_ms: int | None = None, duration_ms: int = 28_000
) -> Rest | None:
    return find_rest(answer, resume_ms, heard_until_ms=27_000, duration_ms=duration_ms)


def test_an_answer_that_stops_long_before_its_window_leaves_a_rest() -> None:
    assert rest(answer((0, 5000), (5000, 7010))) == Rest(start_ms=7020, is_unheard=True)


def test_a_pause_at_the_end_of_a_window_is_no_rest() -> None:
    assert rest(answer((0, 25_000))) is None


def test_silence_has_no_rest_and_a_rest_must_get_on() -> None:
    assert rest(answer()) is None
    assert rest(answer((0, 100))) is None


def test_an_unfinished_segment_is_read_again_unless_it_lies_in_the_padding() -> None:
    assert rest(answer((0, 5000)), 5000) == Rest(start_ms=5000, is_unheard=False)
    assert rest(answer((0, 5000)), 5000, duration_ms=5100) is None


T = 50364
"""The first timestamp of the multilingual checkpoints before large-v3."""


@pytest.mark.parametrize(
    ("tokens", "kept", "resume_ms"),
    [
        ([T, 10, T + 100], 3, None),  # one segment, closed
        ([T, 10, 11], 3, None),  # never closed: lasts to the window's end
        ([T, 10, T + 100, T + 100, 11, T + 200], 6, None),  # two, both closed
        ([T, 10, T + 100, T + 120, 11, 12], 3, 2000),  # the second is unfinished
        ([T, 10, T + 100, T + 100], 3, 2000),  # opened, nothing said
        ([T, 10, T + 10, T + 10, 11], 5, None),  # no progress
        ([], 0, None),
        ([10, 11], 2, None),  # without timestamps
    ],
)
def test_what_is_unfinished_is_left_to_a_second_reading(
    tokens: list[int], kept: int, resume_ms: int | None
) -> None:
    assert split_unfinished(tokens, timestamp_begin=T) == (tokens[:kept], resume_ms)


def test_what_is_appended_moves_to_its_place() -> None:
    joined = append(answer((0, 7000)), answer((0, 1000), (1000, 2000)), offset_ms=7000)

    assert [s.start_ms for s in joined.segments] == [0, 7000, 8000]
    assert joined.segments[-1].end_ms == 9000
