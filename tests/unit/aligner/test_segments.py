"""Words become phrases that join to the text."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from adapters.aligner.segments import LONGEST_MS, segment_words
from adapters.aligner.units import split_units, write_words
from core.transcript import Segment, Word, join_texts


def cut(text, gaps_ms=(), word_ms=300):
    gaps = dict(gaps_ms)
    words, at = [], 0
    for number, word in enumerate(write_words(text, split_units(text))):
        at += gaps.get(number, 0)
        words.append(Word(text=word, start_ms=at, end_ms=at + word_ms))
        at += word_ms
    segment = Segment(text=text, start_ms=0, end_ms=10**6, avg_logprob=-0.1, language="en")
    return segment_words(segment, words)


def test_sentences_and_pauses_end_segments():
    segments = cut("Hello there. How are you? Fine thanks 我很好。你呢", [(6, 1000)])
    assert [segment.text for segment in segments] == [
        "Hello there.", "How are you?", "Fine", "thanks 我很好。", "你呢",
    ]  # fmt: skip
    assert [(s.start_ms, s.end_ms) for s in segments[:3]] == [(0, 600), (600, 1500), (1500, 1800)]
    assert segments[3].start_ms == 2800
    assert {(s.avg_logprob, s.language) for s in segments} == {(-0.1, "en")}


def test_a_sentence_end_inside_quotes_counts():
    assert [s.text for s in cut("He said “no.” Then left")] == ["He said “no.”", "Then left"]


def test_a_number_is_no_sentence_end():
    assert [s.text for s in cut("about 3.5 percent")] == ["about 3.5 percent"]


def test_long_phrases_are_cut_at_clauses():
    text = "one two three four five, six seven eight nine ten eleven"
    segments = cut(text, word_ms=2000)
    assert [segment.text for segment in segments] == [
        "one two three four five,", "six seven eight nine ten eleven",
    ]  # fmt: skip


def test_nothing_is_cut_where_joining_would_change_the_text():
    text = "用。iPhone。手 机。了"
    segments = cut(text)
    assert join_texts(segment.text for segment in segments) == text
    assert [s.text for s in segments] == ["用。iPhone。", "手 机。", "了"]


@given(
    st.text(alphabet="ab1.,'()! 你好。", min_size=1, max_size=60).map(
        lambda t: " ".join(t.split())
    ),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2000)), max_size=5),
    st.integers(1, 4000),
)
def test_segments_join_to_the_text_and_stay_in_order(text, gaps, word_ms):
    if not split_units(text):
        return
    segments = cut(text, gaps, word_ms)
    assert join_texts(segment.text for segment in segments) == text
    for left, right in pairwise(segments):
        assert left.start_ms < left.end_ms <= right.start_ms
    for segment in segments:
        assert segment.words[0].start_ms == segment.start_ms
        assert segment.words[-1].end_ms == segment.end_ms
        if len(segment.words) > 2 and " " in segment.text and segment.text.isascii():
            assert segment.end_ms - segment.start_ms <= max(LONGEST_MS, 2 * word_ms + 2000)
