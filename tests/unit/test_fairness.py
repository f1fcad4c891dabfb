"""Whose turn it is."""

from itertools import chain
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lifecycle.fairness import MAX_REMEMBERED_KEYS, Rotation, interleave, rotate

A, B, C = (UUID(int=i) for i in (1, 2, 3))


def test_keys_take_turns_then_jobs_then_windows() -> None:
    order = list(interleave({A: [["a1", "a2"], ["b1"]], B: [["c1", "c2", "c3"]]}))
    assert order == ["a1", "c1", "b1", "c2", "a2", "c3"]


@given(st.lists(st.lists(st.lists(st.integers(), max_size=4), max_size=4), max_size=4))
def test_interleaving_loses_nothing(lists: list[list[list[int]]]) -> None:
    by_key = {UUID(int=i): jobs for i, jobs in enumerate(lists)}
    everything = chain.from_iterable(chain.from_iterable(lists))
    assert sorted(interleave(by_key)) == sorted(everything)


def test_rotation_begins_after_the_last_even_if_it_is_gone() -> None:
    assert rotate([A, B, C], A) == [B, C, A]
    assert rotate([A, C], B) == [C, A]
    assert rotate([A, B], C) == [A, B]
    assert rotate([A, B], None) == [A, B]


def test_what_is_remembered_is_bounded() -> None:
    rotation = Rotation()
    for i in range(3 * MAX_REMEMBERED_KEYS):
        rotation.advance([(UUID(int=i), A)])
    assert len(rotation.last_job) <= MAX_REMEMBERED_KEYS + 1
    assert rotation.last_key == UUID(int=3 * MAX_REMEMBERED_KEYS - 1)
