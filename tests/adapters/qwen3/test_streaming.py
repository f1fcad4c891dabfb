"""What a listener gets from a stream: right text, in pieces that stay."""

import jiwer
import numpy as np
import pytest
import soundfile

from adapters.streaming import start_streaming
from core import errors
from core.transcript import join_texts
from tests.adapters.qwen3.conftest import CLIPS, Clip

STEP = 32_000


def listen(adapter, samples, *, step=STEP, **options):
    engine = start_streaming(adapter)
    session = engine.open(**options)
    updates = []
    for at in range(0, len(samples), step):
        session.push(samples[at : at + step])
        updates += drain(engine, session)
    session.finish()
    return session, updates + drain(engine, session)


def drain(engine, session):
    updates = []
    while (update := engine.step([session])[0]) is not None:
        updates.append(update)
    return updates


@pytest.mark.parametrize("name", ["01", "03", "07", "09", "11", "13", "15", "17", "21"])
def test_the_deltas_are_the_final_text(asr, clips, name):
    session, updates = listen(asr, clips[name].samples, with_logprobs=True)
    segments = [update.segment for update in updates if update.segment]
    told, spelt = b"", b""
    for update in updates:  # a token comes with the piece that its first letter is in
        told += update.delta.encode()
        spelt += b"".join(bytes(token.utf8) for token in update.logprobs)
        assert spelt.startswith(told)
        assert all(token.logprob <= 0 for token in update.logprobs)
    assert spelt == told
    assert "".join(update.delta for update in updates) == session.text
    assert session.text == join_texts(segment.text for segment in segments)
    assert "\N{REPLACEMENT CHARACTER}" not in session.text
    assert {segment.language for segment in segments} <= {clips[name].language}


def test_streamed_error_rates_are_those_of_the_checkpoint(asr, clips):
    assert error_rate(jiwer.wer, asr, [clips[n] for n in ("03", "05", "07", "09")]) <= 0.02
    assert error_rate(jiwer.cer, asr, [clips[n] for n in ("13", "15", "17")]) <= 0.08


def test_words_that_a_doubtful_step_leaves_out_are_not_lost(asr, clips):
    # With 6 s of it the model says "four my door december five": it jumps from "door" to "door".
    assert listen(asr, clips["05"].samples)[0].text == clips["05"].text


def test_an_utterance_gets_no_longer_than_a_window(asr, clips):
    samples = np.concatenate([clips["03"].samples[3200:64_000]] * 10)  # 38 s without a pause
    _, updates = listen(asr, samples)
    lengths = [u.segment.end_ms - u.segment.start_ms for u in updates if u.segment]
    assert 8000 < max(lengths) <= asr.spec.window_ms == 12_000


def error_rate(measure, asr, clips: list[Clip]) -> float:
    return measure([c.text for c in clips], [listen(asr, c.samples)[0].text for c in clips])


def test_a_loop_is_cut_from_what_a_listener_gets(asr):
    samples, _ = soundfile.read(CLIPS / "loops_7s.flac", dtype="float32")
    session, updates = listen(asr, samples)
    assert updates[-1].closes
    assert updates[-1].warnings == ("loop_collapsed",)
    assert session.text == "".join(update.delta for update in updates)
    assert "来是他不" in session.text
    assert session.text.count("不") <= 3 + 1  # it is said three times


def test_an_answer_that_loops_is_given_up_before_its_cap(asr, monkeypatch):
    samples, _ = soundfile.read(CLIPS / "loops_7s.flac", dtype="float32")
    engine = start_streaming(asr)
    lengths, write = [], asr.runtime.decoder.write

    def counting(*args):
        answers = write(*args)
        lengths.extend((len(answer.tokens), answer.loop_end) for answer in answers)
        return answers

    monkeypatch.setattr(asr.runtime.decoder, "write", counting)
    session = engine.open()
    session.push(samples)
    session.finish()
    drain(engine, session)
    assert any(loop_end is not None for _, loop_end in lengths)
    assert max(length for length, _ in lengths) < engine._config.max_step_tokens / 2


def test_segments_have_their_place_in_the_stream(asr, clips):
    silence = np.zeros(5 * 16_000, np.float32)
    samples = np.concatenate([silence, clips["03"].samples, silence, clips["13"].samples, silence])
    session, updates = listen(asr, samples)
    segments = [update.segment for update in updates if update.segment]
    assert [segment.text for segment in segments] == [clips["03"].text, clips["13"].text]
    assert [segment.language for segment in segments] == ["en", "zh"]
    first, second = segments
    assert 4500 <= first.start_ms <= 5300
    assert first.end_ms <= second.start_ms
    assert 16_000 <= second.start_ms <= 16_700
    assert session.text == f"{clips['03'].text} {clips['13'].text}"


def test_silence_costs_nothing_and_says_nothing(asr):
    engine = start_streaming(asr)
    session = engine.open()
    session.push(np.zeros(120 * 16_000, np.float32))
    session.finish()
    assert drain(engine, session) == []
    assert engine.counters.encoder_frames == 0


def test_a_language_that_is_forced_puts_no_words_into_noise(asr, clips):
    rng = np.random.default_rng(7)
    noise = rng.normal(0, 0.01, 9 * 16_000).astype(np.float32)
    assert listen(asr, noise, language="en")[0].text == ""
    speech = clips["03"].samples + rng.normal(0, 1e-4, len(clips["03"].samples))
    samples = np.concatenate([noise, speech.astype(np.float32)])
    assert listen(asr, samples, language="en")[0].text.endswith(clips["03"].text)


def test_the_size_of_the_pieces_pushed_does_not_matter(asr, clips):
    texts = {listen(asr, clips["07"].samples, step=step)[0].text for step in (320, 5001, 10**6)}
    assert texts == {clips["07"].text}


def test_an_utterance_ends_where_the_caller_says(asr, clips):
    engine = start_streaming(asr)
    session = engine.open(language="en")
    session.push(clips["01"].samples)
    assert drain(engine, session) == []  # 1.6 s are less than a step
    session.end_utterance()
    (update,) = drain(engine, session)
    assert update.closes
    assert update.segment.text == clips["01"].text == update.delta
    session.end_utterance()
    assert drain(engine, session) == []


def test_utterances_do_not_see_each_other(asr, clips):
    gap = np.zeros(16_000, np.float32)
    alone, _ = listen(asr, np.concatenate([clips["13"].samples, gap]))
    _, updates = listen(asr, np.concatenate([clips["03"].samples, gap, clips["13"].samples, gap]))
    assert [update.segment.text for update in updates if update.segment][-1] == alone.text


def test_a_language_the_family_lacks_is_refused(asr):
    with pytest.raises(errors.UnknownLanguage):
        start_streaming(asr).open(language="uk")


def test_other_adapters_do_not_stream_in_chunks():
    class Other:
        class spec:  # noqa: N801
            name = "other"
            supports_chunked_streaming = False

    with pytest.raises(TypeError):
        start_streaming(Other())
