"""Where a window whose answer went astray is cut, and how its parts become one answer."""

import numpy as np
import pytest

from adapters.base import Window
from adapters.qwen3_asr.recut import graft, halve, merge
from core.transcript import Hypothesis, Segment


def test_a_window_is_cut_in_its_longest_pause_and_nothing_is_lost():
    random = np.random.default_rng(0)
    samples = random.normal(0, 0.1, 20 * 16_000).astype(np.float32)
    samples[8 * 16_000 : 8 * 16_000 + 6400] *= 0.01
    samples[11 * 16_000 : 11 * 16_000 + 800] = 0  # a stop consonant
    left, right = halve(Window(key="w", samples=samples), language="zh")
    assert 8 * 16_000 <= len(left.samples) <= 8 * 16_000 + 6400
    assert np.array_equal(np.concatenate([left.samples, right.samples]), samples)
    assert left.language == right.language == "zh"
    assert len({left.key, right.key, "w"}) == 3


def test_a_short_window_is_not_cut():
    assert halve(Window(key="w", samples=np.zeros(5 * 16_000, np.float32)), language=None) is None


def test_the_parts_are_one_segment_over_the_window():
    window = Window(key="w", samples=np.zeros(160_000, np.float32))
    parts = [
        Hypothesis(
            segments=(Segment(text=text, start_ms=0, end_ms=5000, tokens=(1,), avg_logprob=prob),),
            language="en",
            warnings=("loop_collapsed",),
        )
        for text, prob in (("hello", -0.1), ("world", -0.3))
    ]
    merged = merge(window, parts[0], [parts[0], Hypothesis(), parts[1]], "hello world")
    (segment,) = merged.segments
    assert (segment.text, segment.start_ms, segment.end_ms) == ("hello world", 0, 10_000)
    assert (segment.language, segment.avg_logprob) == (None, -0.3)
    assert merged.warnings == ("loop_collapsed",)
    assert merge(window, Hypothesis(), [Hypothesis(), Hypothesis()], "").segments == ()


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        ("", "all of it", "all of it"),
        ("all", "all of it", "all of it"),
        ("one two three", "one three four", "one two three four"),
        ("one two thr", "one two three four", "one two three four"),
        ("我们灯在好", "我们在好灯在六", "我们灯在好灯在六"),
        ("我们灯在", "", "我们灯在"),
        ("what was heard", "something else entirely", None),
    ],
)
def test_what_was_heard_before_the_loop_stands(head, text, expected):
    grafted = graft(head, text)
    assert grafted.startswith(head)
    assert expected is None or grafted == expected
