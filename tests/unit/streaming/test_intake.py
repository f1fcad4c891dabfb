"""Where a stream is cut: in pauses, sample-exact, with nothing lost or heard twice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.intake import Intake

HZ = 16_000


def sound(seconds, *, level=0.1, seed=0):
    rng = np.random.default_rng(seed)
    return (level * rng.standard_normal(int(seconds * HZ))).astype(np.float32)


def silence(seconds):
    return np.zeros(int(seconds * HZ), np.float32)


def cut(samples, *, step=4000, **options):
    """Return the utterances as (start, end) in seconds, and the chunks."""
    intake = Intake(ChunkedStreamingConfig(**options))
    chunks = []
    for at in range(0, len(samples), step):
        intake.push(samples[at : at + step])
        while chunk := intake.take():
            chunks.append(chunk)
    intake.finish()
    while chunk := intake.take():
        chunks.append(chunk)
    assert intake.buffered_ms < 20
    return utterances(chunks), chunks


def utterances(chunks):
    found, start = [], None
    for chunk in chunks:
        start = chunk.start_sample if start is None else start
        if chunk.closes:
            found.append((start / HZ, (chunk.start_sample + len(chunk.samples)) / HZ))
            start = None
    assert start is None
    return found


def test_an_utterance_ends_in_the_middle_of_a_pause():
    samples = np.concatenate([sound(3), silence(1), sound(3), silence(1)])
    first, second = cut(samples)[0]
    assert first == pytest.approx((0, 3.35), abs=0.05)
    assert second == pytest.approx((3.8, 7.35), abs=0.05)


def test_a_pause_over_a_background_counts():
    background = sound(9, level=0.004, seed=1)
    background[: 3 * HZ] += sound(3)
    background[4 * HZ : 7 * HZ] += sound(3)
    spans = cut(background)[0]
    assert spans[0][1] == pytest.approx(3.35, abs=0.1)


def test_short_gaps_do_not_end_an_utterance_before_it_is_long():
    words = np.concatenate([np.concatenate([sound(0.5), silence(0.3)])] * 30)
    ends = [end for _, end in cut(words)[0]]
    assert ends[0] == pytest.approx(12.6, abs=0.8)
    assert all(end % 0.8 > 0.45 or end % 0.8 < 0.05 for end in ends[:-1])


def test_an_endless_sound_is_cut_at_its_quietest_spot():
    samples = sound(40)
    samples[27 * HZ : 27 * HZ + HZ // 5] *= 0.1
    samples[int(26.4 * HZ) :][: HZ // 25] = 0.0  # quieter, but as short as in the middle of a word
    spans, chunks = cut(samples)
    assert spans[0][1] == pytest.approx(27.1, abs=0.05)
    assert max(end - start for start, end in spans) <= 28
    assert max(len(chunk.samples) for chunk in chunks) <= 3 * HZ


def test_chunks_end_on_a_grid_wherever_an_utterance_begins():
    _, chunks = cut(np.concatenate([sound(4.7), np.zeros(HZ + 4800, np.float32), sound(6.1)]))
    ends = [chunk.start_sample + len(chunk.samples) for chunk in chunks if not chunk.closes]
    assert len(ends) >= 4
    assert all(end % (2 * HZ) == 0 for end in ends)


def test_silence_is_dropped_but_for_a_preroll():
    samples = np.concatenate([silence(10), sound(1), silence(10)])
    ((start, end),), _ = cut(samples)
    assert start == pytest.approx(9.8, abs=0.03)
    assert end < 13


def test_silence_alone_gives_nothing():
    assert cut(silence(7.3)) == ([], [])


def test_the_callers_end_is_kept():
    intake = Intake(ChunkedStreamingConfig())
    intake.end_utterance()
    assert intake.take() is None
    intake.push(sound(0.5))
    assert intake.take() is None
    intake.end_utterance()
    chunk = intake.take()
    assert chunk is not None
    assert chunk.closes
    assert len(chunk.samples) == HZ // 2
    intake.push(sound(2.5))
    chunk = intake.take()
    assert chunk is not None
    assert not chunk.closes


@settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["sound", "faint", "silence"]), st.floats(0.01, 4)), max_size=8
    ),
    step=st.integers(100, 60_000),
)
def test_nothing_loud_is_lost_and_nothing_is_heard_twice(parts, step):
    levels = {"sound": 0.1, "faint": 0.002, "silence": 0.0}
    samples = np.concatenate(
        [silence(0), *(sound(seconds, level=levels[kind]) for kind, seconds in parts)]
    )
    _, chunks = cut(samples, step=step)
    heard = np.zeros(len(samples), np.int8)
    for chunk in chunks:
        span = slice(chunk.start_sample, chunk.start_sample + len(chunk.samples))
        assert np.array_equal(chunk.samples, np.clip(samples[span], -1, 1))
        heard[span] += 1
    assert heard.max(initial=0) <= 1
    missed = samples[heard == 0]
    frames = missed[: len(missed) // 320 * 320].reshape(-1, 320)
    assert np.sqrt((frames**2).mean(axis=1)).max(initial=0) < 10 ** (-60 / 20) or len(missed) < 320
