"""Units the aligner reads, and the words that were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.aligner import tokenizers
from adapters.aligner.tokenizers import TokenizerMissing, find_units
from adapters.aligner.units import locate_units, split_units, write_words

MIXED = "Am 3.5., it's (really) $20 - iPhone手机，很好！ «да» 😀 x"  # noqa: RUF001


def written(text):
    return write_words(text, split_units(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello,", "world!"]),
        ("pay $3.50 now", ["pay", "$3.50", "now"]),
        ("it's a well-known fact.", ["it's", "a", "well-known", "fact."]),
        ("(so) he said: “no”", ["(so)", "he", "said:", "“no”"]),
        ("a - b", ["a -", "b"]),
        ("— yes", ["— yes"]),
        ("天气很好，走。", ["天", "气", "很", "好，", "走。"]),  # noqa: RUF001
        ("用iPhone打", ["用", "iPhone", "打"]),
        ("...", []),
        ("", []),
    ],
)
def test_words_are_as_written(text, words):
    assert written(text) == words


def test_units_have_neither_punctuation_nor_signs():
    assert [unit.text for unit in split_units(MIXED)] == [
        "Am", "35", "it's", "really", "20", "iPhone", "手", "机", "很", "好", "да", "x",
    ]  # fmt: skip


@given(st.text(alphabet="ab3.,'() \n-“”$你好。ไท", max_size=40))
def test_words_hold_all_of_the_text_but_white_space(text):
    units = split_units(text)
    words = write_words(text, units)
    assert len(words) == len(units)
    if units:
        assert "".join("".join(words).split()) == "".join(text.split())
        for unit in units:
            assert text[unit.start : unit.end].startswith(unit.text[0])


def test_a_tokenizers_units_are_found_in_the_text():
    units = locate_units("今日は、良い。", ["今日", "は", "、", "良い", "。"])
    assert units is not None
    assert write_words("今日は、良い。", units) == ["今日", "は、", "良い。"]


def test_a_tokenizer_that_changes_the_text_is_not_trusted():
    assert locate_units("ｶﾞｷﾞ", ["ガ", "ギ"]) is None
    assert locate_units("今日は", ["今日"]) is None


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_a_missing_tokenizer_is_told(language, monkeypatch):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(tokenizers.importlib, "import_module", refuse)
    with pytest.raises(TokenizerMissing):
        find_units("今日は", language)


def test_japanese_is_cut_by_its_tokenizer(monkeypatch):
    class Nagisa:
        @staticmethod
        def tagging(text):
            return type("Tagged", (), {"words": ["今日", "は", "雨", "。"]})

    monkeypatch.setattr(tokenizers.importlib, "import_module", lambda name: Nagisa)
    assert [unit.text for unit in find_units("今日は雨。", "ja")] == ["今日", "は", "雨"]
