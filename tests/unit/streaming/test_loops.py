"""When an answer says again what it said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.qwen3_asr.loops import LONGEST_PERIOD, LoopWatch, is_looping

PHRASE = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], False),
        ([1, 2, 3] * 3, True),
        ([9, 8, *[1, 2, 3] * 3, 7], True),
        ([1, 2, 3] * 2 + [1, 2], False),
        ([1, 2] * 4, False),
        ([5, *[1] * 8, 6], False),
        ([1] * 9, True),
        ([9, 8, *PHRASE, *PHRASE, 7], True),
        ([9, 8, *PHRASE, *PHRASE[:4], 7], False),
        ([*PHRASE, 6, *PHRASE], False),
        (PHRASE[:4] * 2, False),
        (list(range(LONGEST_PERIOD)) * 2, True),
        (list(range(LONGEST_PERIOD + 1)) * 2, False),
    ],
)
def test_a_phrase_twice_or_anything_three_times_in_a_row_is_a_loop(tokens, expected):
    assert is_looping(tokens) is expected


def test_a_phrase_that_begins_again_is_open_until_it_goes_on_otherwise():
    watch = LoopWatch()
    num_open = []
    for token in [9, *PHRASE, *PHRASE[:3], 7, 8]:
        watch.take(token)
        num_open.append(watch.num_open)
    assert num_open == [0] * 6 + [1, 2, 3, 0, 0]
    assert not watch.is_looping


@given(st.lists(st.integers(0, 3), max_size=80))
def test_what_is_no_longer_open_never_becomes_so_again(tokens):
    watch = LoopWatch()
    settled = 0
    for count, token in enumerate(tokens, start=1):
        watch.take(token)
        assert settled <= count - watch.num_open
        settled = count - watch.num_open


@pytest.mark.parametrize(
    ("tokens", "first"),
    [
        ([9, 8, *PHRASE * 3, 7], [9, 8, *PHRASE]),
        ([9, *[1] * 20], [9, 1]),
        ([9, 8, *PHRASE * 2, 7], None),  # somebody may have said it twice
    ],
)
def test_of_what_comes_three_times_the_end_of_the_first_is_known(tokens, first):
    watch = LoopWatch()
    for token in tokens:
        watch.take(token)
    assert watch.first_end == (None if first is None else len(first))


def test_a_copy_goes_on_by_itself():
    watch = LoopWatch()
    for token in [9, *PHRASE * 2]:
        watch.take(token)
    copy = watch.copy()
    for token in [7, *PHRASE]:
        watch.take(token)
    assert watch.first_end is None
    for token in PHRASE:
        copy.take(token)
    assert copy.first_end == len([9, *PHRASE])
