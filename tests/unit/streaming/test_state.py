"""Rollback by tokens: what was shown stays, and no character is cut in half."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.streaming.chunks import split_audio_chunks
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.state import StreamingASRState, roll_back, split_words


def words_state(*, unfixed=5, chunks=0):
    config = ChunkedStreamingConfig(num_unfixed_chunks=chunks, num_unfixed_tokens=unfixed)
    return StreamingASRState[str](config, "".join)


def bytes_state(*, unfixed):
    config = ChunkedStreamingConfig(num_unfixed_chunks=0, num_unfixed_tokens=unfixed)
    return StreamingASRState[int](config, decode_bytes)


def decode_bytes(tokens):
    return bytes(tokens).decode(errors="replace")


def test_the_last_words_stay_open():
    state = words_state()
    assert state.update(split_words("hello world one two three four five")) == "hello world"


def test_nothing_is_confirmed_in_the_first_steps():
    state = words_state(chunks=2)
    hypothesis = split_words("hello world one two three four five")
    assert state.update(hypothesis) == ""
    assert state.prefix == ()
    assert state.update(hypothesis) == "hello world"
    assert state.prefix == ("hello", " world")


def test_what_is_unlikely_is_confirmed_as_far_as_the_step_before_said_the_same():
    state = words_state(unfixed=1)
    assert state.update(split_words("four my door"), is_likely=False) == ""
    assert state.update(split_words("four my red five"), is_likely=False) == "four my"
    assert state.update(split_words("four my red five six"), is_likely=False) == " red five"
    assert state.update(split_words("four my red five six one two")) == " six one"


def test_what_two_unlikely_steps_agree_on_ends_in_no_half_character():
    first, second = "今天天".encode(), "今天大".encode()  # they part in the third's last byte
    assert first[:7] == second[:7]
    state = bytes_state(unfixed=0)
    state.update(first, is_likely=False)
    assert state.update(second, is_likely=False) == "今天"


def test_a_shrinking_text_repeats_nothing():
    state = words_state(unfixed=0)
    assert state.update(split_words("alpha beta gamma")) == "alpha beta gamma"
    assert state.update(split_words("alpha beta")) == ""
    assert state.finalize(split_words("alpha beta gamma delta")) == " delta"


def test_a_word_that_grows_is_not_continued_in_its_middle():
    state = words_state(unfixed=0)
    assert state.update(split_words("the cat")) == "the cat"
    assert state.update(split_words("the caterpillar")) == ""
    assert state.finalize(split_words("the caterpillar sat")) == " sat"


@pytest.mark.parametrize(
    "text",
    [
        "今天天气很好我们去公园",
        "こんにちは世界、音声認識です",
        "안녕하세요 세계 음성 인식",
        "สวัสดีครับทุกคน",
        "我用 iPhone 打电话😀 ok",
    ],
)
@pytest.mark.parametrize("unfixed", [0, 1, 2, 5])
def test_deltas_hold_whole_characters_and_join_to_the_text(text, unfixed):
    data = text.encode()
    state = bytes_state(unfixed=unfixed)
    deltas = [state.update(data[:end]) for end in range(1, len(data) + 1)]
    deltas.append(state.finalize(data))
    assert "".join(deltas) == text
    assert all("\N{REPLACEMENT CHARACTER}" not in delta for delta in deltas)
    assert sum(map(bool, deltas)) > 3


@given(
    final=st.text(max_size=40),
    guesses=st.lists(st.binary(max_size=8), max_size=12),
    unfixed=st.integers(0, 6),
)
def test_with_a_forced_prefix_nothing_is_ever_taken_back(final, guesses, unfixed):
    state = bytes_state(unfixed=unfixed)
    shown = []
    for guess in guesses:
        before = state.prefix
        shown.append(state.update([*before, *guess]))
        assert state.prefix[: len(before)] == before
    shown.append(state.finalize([*state.prefix, *final.encode()]))
    assert "".join(shown) == decode_bytes(state.prefix)
    assert decode_bytes(state.prefix).endswith(final)


@given(data=st.text(max_size=30).map(str.encode), unfixed=st.integers(0, 8))
def test_a_rollback_ends_between_characters(data, unfixed):
    kept = roll_back(data, unfixed, decode_bytes)
    assert len(kept) <= max(0, len(data) - unfixed)
    assert data.decode().startswith(decode_bytes(kept))


@given(st.text(alphabet="ab 你好。ไทยか \n", max_size=40))
def test_written_words_join_to_their_text(text):
    words = split_words(text)
    assert "".join(words) == text
    assert all(words)


def test_characters_of_unspaced_scripts_are_words():
    assert split_words("我用 iPhone 打") == ["我", "用", " iPhone", " 打"]


@given(size=st.integers(0, 5000), chunk_ms=st.integers(1, 150))
def test_chunks_join_to_the_samples(size, chunk_ms):
    import numpy as np

    samples = np.arange(size, dtype=np.float32)
    chunks = list(split_audio_chunks(samples, chunk_ms=chunk_ms))
    ends = list(accumulate(len(chunk) for chunk in chunks))
    assert (ends[-1] if ends else 0) == size
    assert all(len(chunk) == chunk_ms * 16 for chunk in chunks[:-1])
    assert not chunks or np.array_equal(np.concatenate(chunks), samples)


def test_a_chunk_has_a_length():
    with pytest.raises(ValueError, match="chunk_ms"):
        list(split_audio_chunks([], chunk_ms=0))
