"""What the model writes is not what people read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.qwen3_asr.answers import Answer, AnswerStream, parse_answer

CONTROL = ("<|im_end|>", "<think>")


@pytest.mark.parametrize(
    ("raw", "language", "text"),
    [
        ("language English<asr_text>Hello world", "en", "Hello world"),
        ("language Chinese<asr_text>你好", "zh", "你好"),
        ("language None<asr_text>", None, ""),
        ("language Chinese,English<asr_text>你好 hello", "zh", "你好 hello"),
        ("language Klingon<asr_text>Qapla", None, "Qapla"),
        ("English<asr_text>Hello", None, "EnglishHello"),
        ("Hello world", None, "Hello world"),  # the prompt had the tag
        ("language arts are fun to teach", None, "language arts are fun to teach"),
        ("language English<asr_text>a<asr_text>b<|im_end|>", "en", "ab"),
        ("language None", None, ""),  # ended before the tag
        (" language English ", "en", ""),
        ("Language English.", None, "Language English."),
        ("", None, ""),
        ("language English<asr_text> Hello\n world ", "en", "Hello world"),
        ("language Chinese<asr_text>我朌\ufffd一看", "zh", "我朌一看"),  # bytes of no character
        ("language English<asr_text>a<|im\ufffd_end|>b", "en", "ab"),
    ],
)
def test_answers_are_parsed(raw, language, text):
    assert parse_answer(raw, control_tokens=CONTROL) == Answer(language, text)


def test_a_collapsed_loop_is_told():
    answer = parse_answer("language English<asr_text>so " + "it is " * 25)
    assert answer == Answer("en", "so it is", has_loop=True)


@pytest.mark.parametrize(
    "tag",
    [
        "<asr_" + "t" * 22 + "ext>",
        "<|im" + " wo" * 22 + "_end|>",
        "<th" + "in" * 20 + "k>",
    ],
)
def test_no_tag_appears_when_a_loop_in_it_is_collapsed(tag):
    answer = parse_answer(f"language English<asr_text>Hello {tag}world", control_tokens=CONTROL)
    assert answer == Answer("en", "Hello world", has_loop=True)
    assert "".join(read(["language English<asr_text>", *f"Hello {tag}world"])) == "Hello world"


def read(pieces):
    stream, raw, deltas = AnswerStream(CONTROL), "", []
    for piece in pieces:
        raw += piece
        deltas.append(stream.update(raw))
    deltas.append(stream.finish(raw))
    return deltas


def test_a_tag_split_over_steps_does_not_leak():
    deltas = read(["language en<asr", "_text>Hello", " world"])
    assert "".join(deltas) == "Hello world"
    assert deltas[0] == ""
    assert deltas[1].startswith("Hel")


def test_a_text_without_a_tag_is_streamed_too():
    deltas = read(["Hel", "lo wor", "ld, how are", " you?"])
    assert "".join(deltas) == "Hello world, how are you?"
    assert deltas[0]


def test_a_text_that_begins_like_a_tag_is_not_lost():
    assert "".join(read(["lang", "uage arts", " are fun"])) == "language arts are fun"


def test_a_control_token_split_over_steps_does_not_leak():
    deltas = read(["language English<asr_text>a <", "|im_", "end|>b <th", "ink>c < d"])
    assert "".join(deltas) == "a b c < d"
    assert not any("im_" in delta or "th" in delta for delta in deltas)


def test_a_loop_does_not_show():
    deltas = read(["language English<asr_text>so ", *["it is "] * 30])
    assert "".join(deltas) == "so it is"


parts = st.sampled_from(
    [
        "language ",
        "English",
        "<asr_text>",
        "<|im_end|>",
        "Hello",
        " ",
        "\n",
        "的",
        "a",
        "<",
        "|>",
        "ha" * 20,
        "<asr_t",
        "t" * 21,
        "ext>",
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(parts, max_size=12), st.randoms(use_true_random=False))
def test_pieces_join_to_the_parsed_text(parts, random):
    whole = "".join(parts)
    cuts = sorted(random.randrange(len(whole) + 1) for _ in range(6)) if whole else []
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    joined = "".join(read(pieces))
    text = parse_answer(whole, control_tokens=CONTROL).text
    assert joined == text
