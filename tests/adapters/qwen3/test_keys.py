from hypothesis import given
from hypothesis import strategies as st

from adapters.qwen3_asr.keys import group_by_length


@given(st.lists(st.integers(1, 400), max_size=20), st.integers(0, 200))
def test_groups_hold_every_row_once(lengths, overhead):
    groups = group_by_length(lengths, overhead=overhead)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))


def test_similar_lengths_are_read_together_and_others_apart():
    groups = group_by_length([100, 20, 101, 99, 21], overhead=48)
    assert sorted(map(sorted, groups)) == [[0, 2, 3], [1, 4]]
    assert len(group_by_length([100, 20, 101, 99, 21], overhead=500)) == 1
