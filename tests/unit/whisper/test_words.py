"""Words and their times, without a model."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.whisper.words import (
    Interval,
    Piece,
    _warp,
    find_token_starts,
    settle,
    shorten_long,
    split_words,
)


def decoder(*pieces: bytes):
    """Return a decode function for tokens 0, 1, …, which spell these bytes."""

    def decode(tokens: Sequence[int]) -> str:
        return b"".join(pieces[token] for token in tokens).decode(errors="replace")

    return decode


def split(*pieces: bytes, is_spaced: bool = True) -> list[str]:
    words = split_words(range(len(pieces)), decoder(*pieces), is_spaced=is_spaced)
    return [word.text for word in words]


def test_subwords_join_and_punctuation_belongs_to_its_word() -> None:
    assert split(b" Hel", b"lo", b",", b" wor", b"ld", b"!") == [" Hello,", " world!"]


def test_an_opening_quote_belongs_to_the_word_behind_it() -> None:
    assert split(b" he", b" said", b' "', b"no", b".") == [" he", " said", ' "no.']


def test_a_character_cut_into_bytes_stays_whole() -> None:
    first, second = "你好".encode()[:2], "你好".encode()[2:]
    words = split(first, second[:1], second[1:], is_spaced=False)

    assert "".join(words) == "你好"
    assert not any("\ufffd" in word for word in words)


def test_unspaced_text_is_split_at_characters() -> None:
    assert split("天".encode(), "地".encode(), "。".encode(), is_spaced=False) == ["天", "地。"]


def slow_starts(cost: np.ndarray) -> float:
    """Return the total of the cheapest path, by the plain recursion."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for i in range(rows):
        for j in range(columns):
            total[i + 1, j + 1] = cost[i, j] + min(total[i, j], total[i, j + 1], total[i + 1, j])
    return float(total[-1, -1])


@pytest.mark.parametrize("seed", range(5))
def test_the_warping_finds_a_cheapest_path(seed: int) -> None:
    random = np.random.default_rng(seed)
    cost = random.normal(size=(9, 40))

    starts = _warp(cost)

    assert starts == sorted(starts)
    ends = [*starts[1:], 39]
    # From its start, a row runs to the next one's start or stops just before it: the cheaper.
    paid = sum(
        min(cost[row, s : e + 1].sum(), cost[row, s:e].sum() if e > s and row < 8 else np.inf)
        for row, (s, e) in enumerate(zip(starts, ends, strict=True))
    )
    assert paid == pytest.approx(slow_starts(cost))


def test_tokens_start_where_the_heads_look() -> None:
    scores = np.zeros((2, 4, 100), np.float32)
    for token, frame in enumerate((0, 20, 45, 70)):
        scores[:, token, frame : frame + 15] = 12.0

    starts = find_token_starts(scores, num_frames=90)

    assert starts[0] == 0
    assert all(abs(a - b) <= 6 for a, b in zip(starts, (0, 20, 45, 70), strict=True))


@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 3_000)), max_size=60),
    st.integers(0, 20_000),
    st.integers(0, 10_000),
)
def test_settled_words_are_ordered_apart_and_inside(
    raw: list[tuple[int, int]], low_ms: int, length_ms: int
) -> None:
    intervals = [Interval(start, start + length) for start, length in raw]
    high_ms = low_ms + length_ms

    settled = settle(intervals, low_ms=low_ms, high_ms=high_ms)

    assert len(settled) in (0, len(intervals))
    assert len(settled) == len(intervals) or length_ms < len(intervals)
    edge = low_ms
    for word in settled:
        assert edge <= word.start_ms < word.end_ms <= high_ms
        edge = word.end_ms


def test_words_that_fit_are_left_alone() -> None:
    intervals = [Interval(100, 300), Interval(300, 900), Interval(1000, 1400)]

    assert settle(intervals, low_ms=0, high_ms=2000) == intervals


def test_a_pause_is_taken_from_the_word_at_the_border_of_a_sentence() -> None:
    words = [Piece(" One", 0, 1), Piece(" two.", 1, 2), Piece(" Three", 2, 3)]
    intervals = [Interval(0, 3000), Interval(3000, 3300), Interval(3300, 3600)]

    shortened = shorten_long(words, intervals)

    assert shortened[0] == Interval(2400, 3000)
    assert shortened[1:] == intervals[1:]
