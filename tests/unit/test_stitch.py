"""Windows to one transcript: in order, inside their windows, nothing lost."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from core.transcript import Hypothesis, Segment, Word
from lifecycle.stitch import (
    WindowResult,
    collect_warnings,
    dominant_language,
    measure_coverage,
    place_segments,
    stitch,
)


def window(
    start_ms: int, length_ms: int, *segments: tuple[int, int, str], channel: int | None = None
) -> WindowResult:
    return WindowResult(
        start_sample=start_ms * 16,
        num_samples=length_ms * 16,
        channel=channel,
        hypothesis=Hypothesis(
            segments=tuple(Segment(start_ms=a, end_ms=b, text=t) for a, b, t in segments),
            language="en",
        ),
    )


def times(segments) -> list[tuple[int, int, str]]:
    return [(s.start_ms, s.end_ms, s.text) for s in segments]


def test_times_are_offset_by_the_real_starts_of_the_windows() -> None:
    windows = [
        window(0, 29_500, (0, 5_000, "a")),
        window(29_500, 29_700, (100, 5_000, "b")),
        window(59_200, 10_000, (0, 1_000, "c")),
    ]
    assert times(stitch(windows)) == [
        (0, 5_000, "a"),
        (29_600, 34_500, "b"),
        (59_200, 60_200, "c"),
    ]


def test_a_segment_that_ends_after_its_window_is_clamped() -> None:
    assert times(stitch([window(1_000, 500, (0, 30_000, "a"))])) == [(1_000, 1_500, "a")]


def test_a_segment_without_time_joins_the_one_before() -> None:
    placed = place_segments(window(0, 1_000, (0, 1_000, "one"), (1_000, 1_000, "two")))
    assert times(placed) == [(0, 1_000, "one two")]


def test_a_first_segment_without_time_gets_some() -> None:
    for at in (0, 500, 1_000, 5_000):
        (segment,) = place_segments(window(0, 1_000, (at, at, "a")))
        assert 0 <= segment.start_ms < segment.end_ms <= 1_000


def test_silence_and_blank_segments_leave_nothing() -> None:
    assert stitch([window(0, 1_000, (0, 500, " ")), window(1_000, 1_000)]) == ()


def test_channels_are_merged_by_time() -> None:
    windows = [
        window(0, 10_000, (0, 1_000, "left"), (5_000, 6_000, "left again"), channel=0),
        window(500, 9_000, (1_500, 2_500, "right"), channel=1),
    ]
    merged = stitch(windows)
    assert [(s.text, s.channel) for s in merged] == [
        ("left", 0),
        ("right", 1),
        ("left again", 0),
    ]


def test_words_stay_inside_their_segment_and_in_order() -> None:
    words = (
        Word(text="a", start_ms=0, end_ms=400),
        Word(text="b", start_ms=300, end_ms=2_000),
    )
    result = WindowResult(
        start_sample=16_000,
        num_samples=16_000,
        channel=None,
        hypothesis=Hypothesis(
            segments=(Segment(text="a b", start_ms=0, end_ms=1_500, words=words),)
        ),
    )
    (segment,) = place_segments(result)
    assert [(w.start_ms, w.end_ms) for w in segment.words] == [(1_000, 1_400), (1_400, 2_000)]


segments = st.lists(
    st.tuples(st.integers(0, 40_000), st.integers(0, 10_000), st.sampled_from(["x", "yy", "z z"])),
    max_size=6,
)


@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 2_000), segments), max_size=8))
def test_the_result_is_ordered_without_overlap_inside_the_media_and_complete(parts) -> None:
    windows, at = [], 0
    for length_ms, pause_ms, raw in parts:
        at += pause_ms
        windows.append(window(at, length_ms, *((a, a + n, t) for a, n, t in raw)))
        at += length_ms

    result = stitch(windows)

    for before, after in itertools.pairwise(result):
        assert before.end_ms <= after.start_ms
    for segment in result:
        assert segment.start_ms < segment.end_ms <= at
    said = "".join(t for _, _, raw in parts for _, _, t in raw).replace(" ", "")
    assert "".join(s.text for s in result).replace(" ", "") == said


@given(st.lists(st.tuples(st.integers(1, 30_000), segments), min_size=1, max_size=6), st.data())
def test_what_starts_before_the_first_missing_window_never_changes(parts, data) -> None:
    windows, at = [], 0
    for length_ms, raw in parts:
        windows.append(window(at, length_ms, *((a, a + n, t) for a, n, t in raw)))
        at += length_ms
    num_known = data.draw(st.integers(0, len(windows) - 1))
    frontier_ms = windows[num_known].start_ms

    early = [s for s in stitch(windows[:num_known]) if s.start_ms < frontier_ms]

    assert early == [s for s in stitch(windows) if s.start_ms < frontier_ms]


def test_coverage_counts_what_was_heard_and_names_what_was_lost() -> None:
    lost = WindowResult(
        start_sample=16_000,
        num_samples=32_000,
        channel=None,
        hypothesis=None,
        error_code="adapter_failure",
    )
    coverage = measure_coverage([window(0, 1_000), lost], duration_ms=4_000, speech_ms=2_500)
    assert coverage == {
        "duration_ms": 4_000,
        "speech_ms": 2_500,
        "recognised_ms": 1_000,
        "windows": 2,
        "gaps": [
            {"start_ms": 1_000, "end_ms": 3_000, "channel": None, "reason": "adapter_failure"}
        ],
    }


def test_the_language_of_most_audio_with_text_wins() -> None:
    def heard(language: str | None, length_ms: int, *, is_silent: bool = False) -> WindowResult:
        said = () if is_silent else (Segment(text="x", start_ms=0, end_ms=1),)
        return WindowResult(
            start_sample=0,
            num_samples=length_ms * 16,
            channel=None,
            hypothesis=Hypothesis(segments=said, language=language),
        )

    assert dominant_language([heard("en", 9), heard("de", 10), heard("en", 2)]) == "en"
    assert dominant_language([heard("en", 99, is_silent=True), heard("de", 1)]) == "de"
    assert dominant_language([heard(None, 5)]) is None
    assert dominant_language([]) is None


def test_warnings_come_once_each_in_order() -> None:
    results = [
        WindowResult(
            start_sample=0,
            num_samples=1,
            channel=None,
            hypothesis=Hypothesis(warnings=codes),
        )
        for codes in (("b", "a"), ("a", "c"))
    ]
    assert collect_warnings(results) == ["b", "a", "c"]
