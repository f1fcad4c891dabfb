"""Raw time classes become word intervals that make sense."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.aligner.times import repair_times, spread_words

times = st.lists(st.integers(0, 100).map(lambda at: at * 80), max_size=40)


def test_times_in_order_stay():
    assert repair_times([0, 80, 80, 400]) == [0, 80, 80, 400]
    assert repair_times([]) == []


def test_an_outlier_is_spread_between_its_neighbours():
    assert repair_times([0, 80, 8000, 240]) == [0, 80, 160, 240]
    assert repair_times([0, 400, 0, 0, 400]) == [0, 0, 0, 0, 400]
    assert repair_times([9000, 0, 80, 160]) == [0, 0, 80, 160]


@given(times)
def test_repaired_times_never_decrease_and_keep_as_many_as_possible(raw):
    repaired = repair_times(raw)
    assert repaired == sorted(repaired)
    assert len(repaired) == len(raw)
    kept = sum(a == b for a, b in zip(raw, repaired, strict=True))
    assert kept >= longest_non_decreasing(raw)


def longest_non_decreasing(values):
    best = []
    for at, value in enumerate(values):
        best.append(1 + max((best[b] for b in range(at) if values[b] <= value), default=0))
    return max(best, default=0)


def test_words_without_length_get_some():
    assert spread_words([80, 80, 80, 80, 400, 400], duration_ms=440) == [
        (80, 120), (120, 160), (400, 440),
    ]  # fmt: skip


def test_words_at_the_end_move_into_the_audio():
    assert spread_words([0, 80, 1000, 1000, 1000, 1000], duration_ms=1000) == [
        (0, 80), (920, 960), (960, 1000),
    ]  # fmt: skip


@given(times.filter(lambda raw: len(raw) % 2 == 0), st.integers(20, 9000))
def test_words_are_in_order_apart_not_empty_and_inside(raw, duration_ms):
    words = spread_words(sorted(min(time, duration_ms) for time in raw), duration_ms=duration_ms)
    assert len(words) == len(raw) // 2
    before = 0
    for start, end in words:
        assert before <= start < end <= duration_ms
        before = end
