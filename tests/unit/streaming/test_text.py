import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.text import (
    collapse_character_runs,
    collapse_pattern_runs,
    collapse_repetitions,
    compression_ratio,
    loop_ratio,
    settled_length,
    squeeze_spaces,
    strip_control_tokens,
)

TAG = "<asr_text>"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("<|im<|x|>_end|>", ""),
        ("<asr_te<asr_text>xt>", ""),
        ("foo<asr_te<|x|>xt>bar", "foobar"),
        ("a < b and c > d", "a < b and c > d"),
        ("1 <| 2", "1 <| 2"),
        ("<|im_start|>system", "system"),
        ("x<|a\nb|>y", "xy"),
    ],
)
def test_control_tokens_are_removed_to_a_fixpoint(text, clean):
    assert strip_control_tokens(text, [TAG]) == clean


@given(st.text(alphabet="<|>xasr_te", max_size=60))
def test_nothing_is_left_to_remove(text):
    clean = strip_control_tokens(text, [TAG])
    assert TAG not in clean
    assert strip_control_tokens(clean, [TAG]) == clean


def test_hostile_nesting_costs_no_more_than_other_text():
    hostile = "<|" * 16_000 + "x" + "|>" * 16_000
    began = time.process_time()
    strip_control_tokens(hostile, [TAG])
    assert time.process_time() - began < 2


def test_a_word_of_twenty_equal_characters_stays():
    assert collapse_repetitions("0" * 20) == "0" * 20
    assert collapse_repetitions("a" + "0" * 21 + "b") == "a0b"


def test_twenty_repeats_of_a_pattern_become_one():
    assert collapse_repetitions("well " + "ha ha " * 10 + "end") == "well ha end"
    assert collapse_repetitions("no " * 19) == "no " * 19
    assert collapse_repetitions("你好" * 20 + "吗") == "你好吗"
    longest = "abcdefghijklmnopqrst"
    assert collapse_repetitions(longest * 20) == longest
    assert collapse_repetitions(f"{longest}u" * 20) == f"{longest}u" * 20


def test_collapsing_long_texts_is_quick():
    text = "and so my fellow americans ask not what your country can do " * 19
    began = time.process_time()
    collapse_repetitions(text * 20)
    assert time.process_time() - began < 3


pieces = st.sampled_from(["a", "b", "ab", "abc", "a" * 21, "ab" * 20, "ba" * 19, "xyz" * 20, " "])


@settings(deadline=None)
@given(st.lists(pieces, max_size=5).map("".join))
def test_what_is_settled_is_never_taken_back(text):
    """Reading a text letter by letter, every settled part begins the final one."""
    final = collapse_pattern_runs(collapse_character_runs(text))
    for end in range(len(text) + 1):
        clean = collapse_character_runs(text[:end])
        settled = collapse_pattern_runs(clean[: settled_length(clean)])
        assert final.startswith(settled)


def test_settling_keeps_up_with_ordinary_text():
    text = "and so my fellow americans ask not what your country"
    assert settled_length(text) >= len(text) - 4


def test_white_space_is_squeezed():
    assert squeeze_spaces("  a\n b\t\tc ") == "a b c"


def test_loops_compress_well():
    assert compression_ratio("") is None
    assert compression_ratio("a short sentence") < 2.4
    assert compression_ratio("again and " * 30) > 2.4


def test_a_language_looks_no_more_like_a_loop_than_another() -> None:
    english = "press one to mute the microphone, two to lock the conference, three to remove a user"
    russian = "нажмите один, чтобы выключить микрофон, два, чтобы закрыть конференцию, три, чтобы"

    assert loop_ratio(english) == compression_ratio(english)
    assert loop_ratio(russian) < 1.2 * loop_ratio(english) < compression_ratio(russian)


@pytest.mark.parametrize("phrase", ["again and ", "снова и ", "และอีกครั้ง ", "谢谢大家。", "다시 "])
def test_a_loop_is_one_in_every_script(phrase: str) -> None:
    assert loop_ratio(phrase * 25) > 2.4
    assert loop_ratio("") == 0.0
