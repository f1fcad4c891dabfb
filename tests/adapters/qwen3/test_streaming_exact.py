"""Every step of a stream equals a computation from nothing over the whole utterance."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from adapters.qwen3_asr.decoding import Row
from adapters.qwen3_asr.features import pad_samples
from adapters.streaming import start_streaming
from adapters.streaming.config import ChunkedStreamingConfig

STEP = 32_000
ENDLESS = ChunkedStreamingConfig(
    pause_ms=10**9,
    short_pause_ms=10**9,
    max_utterance_ms=10**9,
    max_step_tokens=8,
    max_final_tokens=16,
)
TOLERANCE = 1e-4


class Reference:
    """Answers a step the slow way: features, encoder and decoder over all audio so far."""

    def __init__(self, runtime):
        self.runtime = runtime

    @torch.inference_mode()
    def answer(self, samples, tail, max_new_tokens, loops=None):
        mel, decoder = self.runtime.mel, self.runtime.decoder
        raw = mel.raw(pad_samples(samples, min_samples=mel.min_samples))
        features = mel.normalise(raw, float(raw.max()))
        head = self.runtime.lay_out(context=None, language_name=None).head
        padded = -(-features.shape[1] // 100) * 100
        batch = torch.zeros(1, 128, padded)
        batch[0, :, : features.shape[1]] = features
        mask = (torch.arange(padded) < features.shape[1]).long()[None]
        # The model's own path, without this project's packing.
        audio = self.runtime.model.get_audio_features(batch, mask).pooler_output
        row = Row(
            embeddings=torch.cat([decoder.embed(head), audio, decoder.embed(tail)]),
            max_new_tokens=max_new_tokens,
            loops=loops,
        )
        prompts = decoder.read([row])
        return prompts.logits[0].clone(), decoder.write(prompts, [row])[0].tokens


class Spy:
    """Looks on while an engine answers, and compares each answer with the reference's."""

    def __init__(self, engine, monkeypatch, heard):
        self.worst = 0.0
        self.num_steps = 0
        self.num_flips = 0
        self._runtime = engine._runtime
        self._reference = Reference(self._runtime)
        original = engine._answer_batch

        def answer_batch(turns):
            logits = []
            read = self._runtime.decoder.read

            def spying(rows):
                prompts = read(rows)
                logits.extend(prompts.logits.clone())
                return prompts

            with monkeypatch.context() as patch:
                patch.setattr(self._runtime.decoder, "read", spying)
                answers = original(turns)
            for turn, got, answer in zip(turns, logits, answers, strict=True):
                audio = turn.audio
                start = audio.start_sample
                (samples,) = (own for session, own in heard if turn in session._turns)
                samples = samples[start : start + audio.num_samples]
                config = engine._config
                cap = config.max_final_tokens if turn.closes else config.max_step_tokens
                before = self._counters()
                want, tokens = self._reference.answer(samples, turn.tail(), cap, turn.loops())
                self._restore(before)
                self.worst = max(self.worst, float((got - want).abs().max()))
                self.num_flips += tokens != answer.tokens
                self.num_steps += 1
            return answers

        monkeypatch.setattr(engine, "_answer_batch", answer_batch)

    def _counters(self):
        return self._runtime.encoder.num_frames, self._runtime.decoder.num_tokens

    def _restore(self, counters):
        self._runtime.encoder.num_frames, self._runtime.decoder.num_tokens = counters


def play(engine, sessions, streams):
    """Feed each session its stream in steps of 2 s; return all updates."""
    updates = [[] for _ in sessions]
    longest = max(map(len, streams))
    for at in range(0, longest + STEP, STEP):
        for session, samples in zip(sessions, streams, strict=True):
            session.push(samples[at : at + STEP])
            if at >= len(samples):
                session.finish()
        while any(got := engine.step(sessions)):
            for own, update in zip(updates, got, strict=True):
                if update is not None:
                    own.append(update)
    return updates


def start(adapter, monkeypatch, streams, config=None):
    engine = start_streaming(adapter)
    engine._config = config or engine._config
    sessions = [engine.open() for _ in streams]
    heard = zip(sessions, streams, strict=True)
    return engine, sessions, Spy(engine, monkeypatch, list(heard))


@pytest.mark.parametrize("model", ["asr", "random_asr"])
@pytest.mark.parametrize("louder_from_s", [None, 21.0])
def test_a_stream_equals_a_full_recompute_at_every_step(
    model, louder_from_s, make_speech, monkeypatch, request
):
    adapter = request.getfixturevalue(model)
    samples = make_speech(35.3, seed=3, louder_from_s=louder_from_s)
    engine, sessions, spy = start(adapter, monkeypatch, [samples], ENDLESS)
    play(engine, sessions, [samples])
    assert spy.num_steps == 18
    assert spy.worst < TOLERANCE
    assert spy.num_flips == 0
    if louder_from_s is not None:
        assert engine.counters.reencoded_windows > 0


@pytest.mark.parametrize("name", ["05", "07", "09", "17"])
def test_speech_in_utterances_equals_a_full_recompute(asr, clips, name, monkeypatch):
    samples = clips[name].samples
    engine, sessions, spy = start(asr, monkeypatch, [samples])
    play(engine, sessions, [samples])
    assert spy.worst < TOLERANCE
    assert spy.num_flips == 0


def test_a_long_utterance_of_speech_equals_a_full_recompute(asr, clips, monkeypatch):
    samples = np.concatenate([0.2 * clips["07"].samples, clips["17"].samples])
    engine, sessions, spy = start(asr, monkeypatch, [samples], replace(ENDLESS, max_step_tokens=40))
    play(engine, sessions, [samples])
    assert spy.worst < TOLERANCE
    assert spy.num_flips == 0
    assert spy.num_steps > 15


@pytest.mark.parametrize("model", ["asr", "random_asr"])
def test_many_sessions_of_different_length_share_a_step_and_nothing_else(
    model, clips, make_speech, monkeypatch, request
):
    adapter = request.getfixturevalue(model)
    streams = [clips["07"].samples, make_speech(19.1), clips["13"].samples, clips["05"].samples]
    engine, sessions, spy = start(adapter, monkeypatch, streams, ENDLESS)
    together = play(engine, sessions, streams)
    assert spy.worst < TOLERANCE
    assert spy.num_flips == 0
    alone = []
    for samples in streams:
        other = start_streaming(adapter)
        other._config = ENDLESS
        alone.append(play(other, [other.open()], [samples])[0])
    assert together == alone


def test_the_end_of_an_utterance_and_the_next_beginning_share_a_batch(asr, clips, monkeypatch):
    gap = np.zeros(16_000, np.float32)
    samples = np.concatenate([clips["03"].samples, gap, clips["05"].samples])
    engine, sessions, spy = start(asr, monkeypatch, [samples])
    sizes, read = [], asr.runtime.decoder.read
    monkeypatch.setattr(
        asr.runtime.decoder, "read", lambda rows: sizes.append(len(rows)) or read(rows)
    )
    sessions[0].push(samples)
    while any(engine.step(sessions)):
        pass
    assert 2 in sizes
    assert spy.worst < TOLERANCE
    assert spy.num_flips == 0
    assert sessions[0].text.startswith(clips["03"].text)


def test_128_seconds_cost_at_most_60_000_encoder_frames(random_asr, make_speech):
    samples = make_speech(128, seed=1)
    engine = start_streaming(random_asr)
    engine._config = replace(ENDLESS, max_step_tokens=4)
    play(engine, [engine.open()], [samples])
    assert engine.counters.num_steps in (64, 65)
    assert engine.counters.encoder_frames <= 60_000


def test_work_a_step_does_not_grow_with_the_stream(asr, clips):
    speech = np.concatenate([clips[name].samples for name in ("05", "17", "21")])
    engine = start_streaming(asr)
    session = engine.open()
    costs = []
    for _ in range(4):
        before = engine.counters
        for at in range(0, len(speech), STEP):
            session.push(speech[at : at + STEP])
            while any(engine.step([session])):
                pass
        costs.append(
            (
                engine.counters.encoder_frames - before.encoder_frames,
                engine.counters.decoder_tokens - before.decoder_tokens,
            )
        )
    frames, tokens = zip(*costs, strict=True)
    assert max(frames) < 1.2 * min(frames)
    assert max(tokens) < 1.2 * min(tokens)
    assert session.buffered_ms < 2500


def test_a_step_that_lacks_memory_hears_the_same_audio_again(asr, clips, monkeypatch):
    samples = clips["07"].samples
    undisturbed = start_streaming(asr)
    expected = play(undisturbed, [undisturbed.open()], [samples])
    engine = start_streaming(asr)
    session = engine.open()
    write, calls = asr.runtime.decoder.write, []

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) % 3 == 0:
            raise torch.OutOfMemoryError("provoked")
        return write(*args, **kwargs)

    monkeypatch.setattr(asr.runtime.decoder, "write", failing)
    updates = []
    for at in range(0, len(samples) + STEP, STEP):
        session.push(samples[at : at + STEP])
        if at >= len(samples):
            session.finish()
        while (update := step_again(engine, session)) is not None:
            updates.append(update)
    assert len(calls) > 6
    assert [updates] == expected


def step_again(engine, session):
    from core import errors

    try:
        return engine.step([session])[0]
    except errors.DeviceOutOfMemory:
        return engine.step([session])[0]


def test_the_random_checkpoint_hears(random_asr, make_speech):
    """Otherwise equality above would prove nothing."""
    reference = Reference(random_asr.runtime)
    tail = random_asr.runtime.lay_out(context=None, language_name=None).tail
    samples, other = make_speech(24), make_speech(24, seed=5)
    logits, _ = reference.answer(samples, tail, 1)
    for second in (0, 8, 16):
        mixed = samples.copy()
        mixed[second * 16_000 :][: 8 * 16_000] = other[second * 16_000 :][: 8 * 16_000]
        changed, _ = reference.answer(mixed, tail, 1)
        assert (changed - logits).abs().max() > 100 * TOLERANCE
