"""What of a text that is being decoded may be told."""

import pytest

from adapters.whisper.voice import Marks, Progress, Voice, settled_text

MARKS = Marks(timestamp_begin=200, end=100)
T0, T1, T2 = 200, 250, 300
VOCABULARY = [" and", " so", " my", " fel", "low", " Americans", "我", "们", ", ask", "."]


def decode(tokens):
    return "".join(VOCABULARY[token] for token in tokens)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([T0], ""),
        ([T0, 0], ""),
        ([T0, 0, 1, 2, 3], "and so my"),
        ([T0, 0, 1, 2, 3, 4], "and so my"),
        ([T0, 0, 1, 2, 3, 4, 5], "and so my fellow"),
        ([0, 1, 2, 3, 4, 5], "and so my fellow"),  # without timestamps
        ([T0, 0, 6, 7], "and我们"),
        ([T0, 0, 1, T1], "and so"),
        ([T0, 0, 1, T1, T1, 2, 3, 4, 5], "and so"),  # may be cut off and read again
        ([T0, 0, 1, T1, T1, 2, 5, T2], "and so my Americans"),
    ],
)
def test_text_is_settled_by_words_and_then_by_segments(tokens, expected):
    assert settled_text(tokens, decode, MARKS) == expected


def hear(tokens, *, prompt=None, avg_logprob=-0.2, no_speech_prob=0.01):
    told = []
    voice = Voice(decode, MARKS, prompt=prompt, tell=told.append)
    for end in range(1, len(tokens) + 1):
        voice.hear(
            Progress(tokens=tokens[:end], avg_logprob=avg_logprob, no_speech_prob=no_speech_prob)
        )
    return voice, told


def test_pieces_join_to_the_final_text():
    voice, told = hear([T0, 0, 1, 2, 3, 4, 5, T1, T1, 0, 1, T2])
    assert len(told) >= 3
    voice.finish("and so my fellow Americans and so")
    assert "".join(told) == voice.told == "and so my fellow Americans and so"


@pytest.mark.parametrize(
    "doubt",
    [
        {"avg_logprob": -0.9},
        {"no_speech_prob": 0.7},
        {"prompt": "And so, my fellow Americans!"},
    ],
)
def test_what_may_be_tried_again_is_not_told_before_its_end(doubt):
    voice, told = hear([T0, 0, 1, 2, 3, 4, 5], **doubt)
    assert told == []
    voice.finish("something else")
    assert told == ["something else"]


def test_a_loop_is_not_told():
    _, told = hear([T0, *[0, 1] * 60])
    assert len("".join(told)) < 100


def test_what_was_told_is_not_taken_back():
    voice, told = hear([T0, 0, 1, 2, 3, 4, 5, T1])
    before = list(told)
    voice.finish("quite another text")
    assert told == before


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([T0, 0], []),
        ([T0, 0, 1, 2, 3, 4], [T0, 0, 1, 2]),  # "fellow" may go on
        ([T0, 0, 1, 2, 3, 4, 5, T1], [T0, 0, 1, 2, 3, 4, 5, T1]),
        ([T0, 0, 1, 2, 3, 4, 5, T1, T1, 0, 1], [T0, 0, 1, 2, 3, 4, 5, T1]),
        ([T0, 0, 1, 2, 6, 7, 0], [T0, 0, 1, 2, 6, 7]),
    ],
)
def test_another_try_begins_with_the_tokens_of_what_was_told(tokens, told):
    voice, _ = hear(tokens)
    assert list(voice.find_told_tokens()) == told


def test_what_is_said_for_the_third_time_in_a_row_waits_for_something_else():
    _, told = hear([T0, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    assert "".join(told) == "and so my and so my and"
    _, told = hear([T0, 0, 1, 2, 0, 1, 2, 0, 1, 2, 5, 0])
    assert "".join(told) == "and so my and so my and so my Americans"
