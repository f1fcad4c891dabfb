"""How batches are put together, pure."""

import itertools
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from workers.batching import (
    MAX_PADDING,
    MODEL_TURN_S,
    BatchLimits,
    choose_model,
    plan_batch,
    split_evenly,
    spread,
)


@dataclass(frozen=True)
class Waiting:
    """A candidate; `name` tells equals apart."""

    name: int
    duration_ms: int
    failures: int = 0

    @property
    def num_samples(self) -> int:
        return self.duration_ms * 16


def waiting(*durations_ms: int) -> list[Waiting]:
    return [Waiting(name, ms) for name, ms in enumerate(durations_ms)]


LIMITS = BatchLimits(max_windows=4, max_audio_ms=120_000)


@given(
    st.lists(st.integers(1, 60_000), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(1, 200_000),
    st.sampled_from([0, 30_000]),
)
def test_a_batch_has_the_first_and_respects_every_limit(
    durations_ms: list[int], max_windows: int, max_audio_ms: int, padded_ms: int
) -> None:
    candidates = waiting(*durations_ms)
    limits = BatchLimits(max_windows=max_windows, max_audio_ms=max_audio_ms, padded_ms=padded_ms)

    batch = plan_batch(candidates, limits)

    assert batch[0] == candidates[0]
    assert len({w.name for w in batch}) == len(batch) <= max_windows
    costs = [limits.cost_ms(w) for w in batch]
    if len(batch) > 1:
        padded = max(costs) * len(costs)
        assert padded <= max_audio_ms
        assert padded - sum(costs) <= MAX_PADDING * padded


def test_similar_lengths_go_together() -> None:
    batch = plan_batch(waiting(10_000, 1_000, 9_500, 1_200, 10_500), LIMITS)
    assert sorted(w.duration_ms for w in batch) == [9_500, 10_000, 10_500]


def test_where_all_cost_the_same_the_order_is_kept() -> None:
    limits = BatchLimits(max_windows=3, max_audio_ms=999_999, padded_ms=30_000)
    batch = plan_batch(waiting(10_000, 29_000, 1_000, 30_000), limits)
    assert [w.name for w in batch] == [0, 1, 2]


def test_a_window_that_failed_is_alone_first_or_not() -> None:
    healthy = waiting(10_000, 10_000)
    suspect = Waiting(9, 10_000, failures=1)
    assert plan_batch([suspect, *healthy], LIMITS) == [suspect]
    assert plan_batch([*healthy, suspect], LIMITS) == healthy


def test_a_window_over_the_budget_gets_a_batch_of_its_own() -> None:
    assert len(plan_batch(waiting(500_000, 500_000), LIMITS)) == 1


def test_the_most_urgent_checkpoint_wins_whatever_is_loaded() -> None:
    assert choose_model({"a": 10, "b": 0}, "a", served_s=0) == "b"


def test_among_equals_the_loaded_checkpoint_has_its_turn_and_then_the_next() -> None:
    equal = {"a": 10, "b": 10, "c": 10}
    assert choose_model(equal, "b", served_s=MODEL_TURN_S - 1) == "b"
    assert choose_model(equal, "b", served_s=MODEL_TURN_S) == "c"
    assert choose_model(equal, "c", served_s=MODEL_TURN_S) == "a"
    assert choose_model({"b": 10}, "b", served_s=999) == "b"
    assert choose_model({"b": 10}, "a", served_s=0) == "b"
    assert choose_model(equal, None, served_s=0) == "a"


@given(st.integers(1, 500), st.integers(1, 9))
def test_spread_positions_are_distinct_inside_and_even(num_items: int, num_wanted: int) -> None:
    positions = spread(num_items, num_wanted)
    assert len(positions) == min(num_items, num_wanted)
    assert positions == sorted(set(positions))
    assert positions[0] >= 0
    assert positions[-1] < num_items
    gaps = [b - a for a, b in itertools.pairwise(positions)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_nothing_to_spread_over_is_nothing() -> None:
    assert spread(0, 5) == []


def test_split_evenly_loses_nothing() -> None:
    assert split_evenly([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
