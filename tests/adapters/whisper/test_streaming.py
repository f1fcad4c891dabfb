"""Whisper on growing audio: the text of the whole, word by word, and nothing for noise."""

import jiwer
import numpy as np
import pytest

from adapters.streaming import DeltaTranscriber, start_streaming
from adapters.whisper import fallback, ladder
from adapters.whisper.fallback import Scores, Verdict
from adapters.whisper.runtime import WhisperRuntime
from core.options import Timestamps
from tests.adapters.whisper.conftest import WindowFactory

STEP = 32_000


def test_streams_of_several_languages_say_in_one_batch_what_their_windows_say(
    whisper: WhisperRuntime, speech: dict[str, np.ndarray], window: WindowFactory
) -> None:
    names = ("en", "ja", "sv")
    expected = [h.text for h in whisper.transcribe([window(name) for name in names])]
    engine = start_streaming(whisper)
    sessions = [
        engine.open(language=name if name == "ja" else None, with_logprobs=True) for name in names
    ]
    deltas: list[list[str]] = [[] for _ in names]
    spelt: list[bytes] = [b""] * len(names)
    for at in range(0, 14 * 16_000, STEP):
        for session, name in zip(sessions, names, strict=True):
            session.push(speech[name][at : at + STEP])
            if at >= len(speech[name]):
                session.finish()
        while any(updates := engine.step(sessions)):
            for number, update in enumerate(updates):
                if update is not None:
                    deltas[number].append(update.delta)
                    spelt[number] += b"".join(bytes(token.utf8) for token in update.logprobs)
    assert ["".join(own) for own in deltas] == [session.text for session in sessions]
    assert [tokens.decode() for tokens in spelt] == [session.text for session in sessions]
    for session, whole in zip(sessions, expected, strict=True):
        # A word is settled before the rest is heard, so that now and then one stays otherwise.
        assert jiwer.cer(letters(whole), letters(session.text)) <= 0.15, session.text
    assert sum(bool(delta) for delta in deltas[0]) >= 3
    assert engine.counters.num_steps <= 16


def letters(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())


def test_nothing_is_heard_in_noise(whisper: WhisperRuntime) -> None:
    engine = start_streaming(whisper)
    session = engine.open()
    noise = np.random.default_rng(1).normal(0, 0.05, 10 * 16_000)
    session.push(noise.astype(np.float32))
    session.finish()
    while any(engine.step([session])):
        pass
    assert session.text == ""
    assert engine.counters.num_steps == 0


def test_the_pieces_told_while_decoding_join_to_the_texts(
    whisper: WhisperRuntime, speech: dict[str, np.ndarray], window: WindowFactory
) -> None:
    cut_off = np.concatenate([speech["en"], speech["es"], speech["en"]])[: 30 * 16_000]
    windows = [
        window("en"),
        window("ja"),
        window("en", samples=cut_off, timestamps=Timestamps.WORD),
        window("en", prompt="And so my fellow Americans"),
        window("en", timestamps=Timestamps.NONE),
        window("en", samples=np.zeros(32_000, np.float32)),
    ]
    pieces: list[list[str]] = [[] for _ in windows]
    assert isinstance(whisper, DeltaTranscriber)
    hypotheses = whisper.transcribe_stream(windows, lambda n, delta: pieces[n].append(delta))
    assert hypotheses == whisper.transcribe(windows)
    assert ["".join(own) for own in pieces] == [hypothesis.text for hypothesis in hypotheses]
    assert all(delta for own in pieces for delta in own)
    assert min(len(pieces[n]) for n in (0, 2, 4)) >= 5


def test_a_window_that_is_tried_again_goes_on_from_what_was_told(
    whisper: WhisperRuntime, window: WindowFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Verdict] = []

    def never_the_first(scores: Scores, *, is_echo: bool) -> Verdict:
        judged.append(Verdict.LOOP if not judged else Verdict.GOOD)
        return judged[-1]

    monkeypatch.setattr(ladder, "judge", never_the_first)
    monkeypatch.setattr(fallback, "LADDER", (0.0, 1.0))
    pieces: list[str] = []
    request = window("es", language="en")  # in another language: at random it reads otherwise
    (hypothesis,) = whisper.transcribe_stream([request], lambda _, delta: pieces.append(delta))
    assert judged == [Verdict.LOOP, Verdict.GOOD]
    assert hypothesis.segments[0].temperature == 1.0
    assert len(pieces) >= 3
    assert "".join(pieces) == hypothesis.text
    judged.clear()
    assert whisper.transcribe([request])[0].text != hypothesis.text
