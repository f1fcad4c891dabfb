"""Growing audio on a model that cannot be forced: one that hears a script, without torch."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from adapters.base import AdapterSpec
from adapters.streaming import start_streaming
from adapters.streaming.growing import GrowingEngine
from adapters.streaming.words import set_apart, spaced_words
from core import errors
from core.transcript import Hypothesis, Segment, TokenLogprob, Word

HZ = 16_000
SPEECH = soundfile.read(Path(__file__).parents[3] / "samples" / "en_kennedy.flac", dtype="float32")[
    0
]


class Scripted:
    """Hears word n between n and n + 0.9 s of the stream, which begins with the session."""

    spec = AdapterSpec(
        name="scripted", window_ms=30_000, padded_ms=30_000, supports_chunked_streaming=True
    )
    languages = frozenset({"en"})

    def __init__(self, script):
        self.script = script
        self.batches = []
        self.most = 99

    def transcribe(self, windows):
        if len(windows) > self.most:
            raise errors.DeviceOutOfMemory("provoked")
        self.batches.append([window.duration_ms for window in windows])
        assert all(window.duration_ms <= 30_000 for window in windows)
        return [self._hear(window) for window in windows]

    def _hear(self, window):
        first = self.offset(window)
        count = -(-window.duration_ms // 1000)
        words = tuple(
            Word(text=word, start_ms=1000 * n, end_ms=1000 * n + 900)
            for n, word in enumerate(self.script[first : first + count])
        )
        if not words:
            return Hypothesis(language="en")
        text = " ".join(word.text for word in words)
        end_ms = max(word.end_ms for word in words)
        segment = Segment(text=text, start_ms=0, end_ms=end_ms, words=words, tokens=(1,) * count)
        return Hypothesis(segments=(segment,), language="en")

    def offset(self, window):
        return 0


def play(engine, sessions, streams, *, step=2 * HZ):
    updates = [[] for _ in sessions]
    for at in range(0, max(map(len, streams)) + step, step):
        for session, samples in zip(sessions, streams, strict=True):
            session.push(samples[at : at + step])
            if at >= len(samples):
                session.finish()
        while any(got := engine.step(sessions)):
            for own, update in zip(updates, got, strict=True):
                if update is not None:
                    own.append(update)
    return updates


def test_confirmed_words_come_early_and_join_to_the_text():
    adapter = Scripted([f"w{n}" for n in range(20)])
    engine = start_streaming(adapter)
    assert isinstance(engine, GrowingEngine)
    session = engine.open(language="en")
    (updates,) = play(engine, [session], [SPEECH])
    deltas = [update.delta for update in updates]
    assert "".join(deltas) == session.text == " ".join(f"w{n}" for n in range(11))
    assert deltas[1].startswith("w0")
    segments = [update.segment for update in updates if update.segment]
    assert " ".join(segment.text for segment in segments) == session.text
    assert segments[0].words[0] == Word(text="w0", start_ms=0, end_ms=900)


@pytest.mark.parametrize("level", [0.0, 1e-3, 0.02, 0.2])
def test_neither_silence_nor_noise_reaches_the_model(level):
    adapter = Scripted(["thank", "you"])
    engine = start_streaming(adapter)
    session = engine.open()
    noise = np.random.default_rng(0).normal(0, 1, 40 * HZ).astype(np.float32) * np.float32(level)
    play(engine, [session], [noise])
    assert adapter.batches == []
    assert session.text == ""


def test_sessions_share_a_batch_and_a_step_that_lacks_memory_is_halved():
    adapter = Scripted([f"w{n}" for n in range(20)])
    engine = start_streaming(adapter)
    sessions = [engine.open() for _ in range(4)]
    streams = [SPEECH] * 4
    play(engine, sessions, streams)
    assert {len(batch) for batch in adapter.batches} == {4}
    assert engine.counters.encoder_frames == 3000 * engine.counters.num_steps
    halved = Scripted(adapter.script)
    halved.most = 1
    engine = start_streaming(halved)
    others = [engine.open() for _ in range(4)]
    play(engine, others, streams)
    assert [other.text for other in others] == [session.text for session in sessions]


def test_without_memory_for_one_session_the_same_audio_is_heard_again():
    adapter = Scripted([f"w{n}" for n in range(20)])
    engine = start_streaming(adapter)
    session = engine.open()
    session.push(SPEECH[: 4 * HZ])
    adapter.most = 0
    with pytest.raises(errors.DeviceOutOfMemory):
        engine.step([session])
    adapter.most = 1
    assert engine.step([session]) != [None]
    assert adapter.batches == [[2000]]


def test_the_open_audio_stays_bounded_and_settled_audio_goes():
    adapter = Scripted([f"w{n}" for n in range(60)])
    trimmed = []

    def offset(window):
        trimmed.append(window)
        return 0

    adapter.offset = offset
    engine = start_streaming(adapter)
    session = engine.open()
    endless = np.tile(SPEECH[HZ // 2 : 2 * HZ], 60)[: 60 * HZ]
    play(engine, [session], [endless])
    assert max(max(batch) for batch in adapter.batches) <= 24_000
    assert any(window.prompt for window in trimmed)


def test_a_language_the_checkpoint_lacks_is_refused():
    with pytest.raises(errors.UnknownLanguage):
        start_streaming(Scripted([])).open(language="xx")


class Drifting(Scripted):
    """Hears every word 150 ms earlier from one step to the next."""

    def _hear(self, window):
        heard = super()._hear(window)
        early_ms = 150 * len(self.batches)
        moved = [
            replace(
                word,
                start_ms=max(0, word.start_ms - early_ms),
                end_ms=max(10, word.end_ms - early_ms),
            )
            for segment in heard.segments
            for word in segment.words
        ]
        return replace(heard, segments=(replace(heard.segments[0], words=tuple(moved)),))


def test_words_that_were_settled_in_different_steps_do_not_overlap():
    engine = start_streaming(Drifting([f"w{n}" for n in range(20)]))
    session = engine.open()
    (updates,) = play(engine, [session], [SPEECH])
    (segment,) = [update.segment for update in updates if update.segment]
    bounds = [(word.start_ms, word.end_ms) for word in segment.words]
    assert all(start < end for start, end in bounds)
    assert all(left[1] <= right[0] for left, right in pairwise(bounds))
    assert any(left[1] == right[0] for left, right in pairwise(bounds))
    assert (segment.start_ms, segment.end_ms) == (bounds[0][0], bounds[-1][1])


@pytest.mark.parametrize(
    ("times", "apart"),
    [
        ([(0, 500), (460, 900)], [(0, 480), (480, 900)]),
        ([(100, 200), (150, 180)], [(100, 175), (175, 180)]),
        ([(100, 200), (40, 60)], [(100, 120), (120, 121)]),
        ([(100, 200), (20, 30), (25, 300)], [(100, 110), (110, 111), (111, 300)]),
        ([(0, 100), (100, 200)], [(0, 100), (100, 200)]),
        ([], []),
    ],
)
def test_overlap_is_shared_and_no_word_is_empty(times, apart):
    words = set_apart([Word(text="w", start_ms=start, end_ms=end) for start, end in times])
    assert [(word.start_ms, word.end_ms) for word in words] == apart


class Spelling(Scripted):
    """Writes each word with two tokens, and knows how sure it was of them."""

    def _hear(self, window):
        hypothesis = super()._hear(window)
        if not window.with_logprobs or not hypothesis.segments:
            return hypothesis
        segment = hypothesis.segments[0]
        tokens = []
        for word in segment.words:
            tokens += [
                TokenLogprob(utf8=tuple(f" {word.text[0]}".encode()), logprob=-0.25),
                TokenLogprob(utf8=tuple(word.text[1:].encode()), logprob=-0.5),
            ]
        return replace(hypothesis, segments=(replace(segment, token_logprobs=tuple(tokens)),))


def test_words_come_with_the_tokens_that_spell_them_once():
    engine = GrowingEngine(Spelling([f"w{n}" for n in range(20)]))
    asking, other = engine.open(with_logprobs=True), engine.open()
    updates, others = play(engine, [asking, other], [SPEECH, SPEECH])
    assert len([update for update in updates if update.logprobs]) >= 3
    for update in updates:
        spelt = b"".join(bytes(token.utf8) for token in update.logprobs).decode()
        assert spelt == update.delta
    assert sum(len(update.logprobs) for update in updates) == 2 * len(asking.text.split())
    assert not any(update.logprobs for update in others)


def test_words_keep_the_spaces_of_the_text():
    def segment(text, words):
        return Segment(
            text=text,
            start_ms=0,
            end_ms=900,
            words=tuple(Word(text=word, start_ms=0, end_ms=900) for word in words),
        )

    hypothesis = Hypothesis(
        segments=(
            segment("我用Python写 well-known", ["我", "用", "Py", "thon", "写", "well-known"]),
            replace(segment("没有词", []), start_ms=0),
            segment("and then", ["and", "then"]),
        )
    )
    words = spaced_words(hypothesis, offset_ms=500)
    assert "".join(word.text for word in words) == hypothesis.text
    assert words[0].start_ms == 500
    assert "没有词" in [word.text.strip() for word in words]
