"""`scriptorium listen`: audio in, text out as it comes, and an exit code that tells."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cli.listen import Request, run
from cli.listen_text import FAREWELL, Script
from core.errors import InvalidInput, ServiceUnavailable, Unauthenticated
from tests.integration.live.conftest import SPEECH, Live
from tests.support.live import Ear
from tests.support.pipeline import wav


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the command prints as text; logs of the server in this process share its stdout."""
    texts: list[str] = []
    monkeypatch.setattr("cli.listen._write", texts.append)
    return texts


def ask(live: Live, source: Path | str, **options) -> Request:
    given = {
        "rate_hz": 16_000, "model": None, "language": None, "prompt": None, "speed": None,
        "server": live.server.url, "key": live.server.key, "data": None, "as_jsonl": False,
    }  # fmt: skip
    return Request(source=str(source), **{**given, **options})


def test_a_recording_is_played_and_its_text_printed(
    live: Live, ear: Ear, speech: np.ndarray, tmp_path: Path, printed: list[str]
) -> None:
    path = tmp_path / "two turns.wav"
    path.write_bytes(wav(np.concatenate((speech, speech))))
    assert run(ask(live, path, language="en", prompt="Names")) == 0
    turns = "".join(printed).splitlines()
    assert [sum(map(int, turn.split())) for turn in turns] == [
        len(stream.samples) for stream in ear.streams
    ]
    assert len(turns) == 2
    assert {(stream.language, stream.prompt) for stream in ear.streams} == {("en", "Names")}


def test_raw_audio_comes_from_a_pipe(
    live: Live, speech: np.ndarray, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    pcm = np.round(speech * 32767).astype("<i2").tobytes()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr("sys.stdin", pipe)

        def speak() -> None:
            with os.fdopen(writing, "wb") as mouth:
                mouth.write(pcm + b"\0")  # a broken sample at the end

        speaker = threading.Thread(target=speak)
        speaker.start()
        assert run(ask(live, "-")) == 0
        speaker.join()
    assert "".join(printed).startswith("8000 8000")


def test_a_signal_ends_it_with_the_text_of_what_was_said(
    live: Live, ear: Ear, speech: np.ndarray, tmp_path: Path, printed: list[str]
) -> None:
    path = tmp_path / "long.wav"
    path.write_bytes(wav(np.tile(speech, 20)))
    is_heard = threading.Event()
    ear.before = lambda _streams: is_heard.set()

    def interrupt() -> None:
        assert is_heard.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    assert run(ask(live, path, speed=1.0)) == 130
    interrupter.join()
    assert "".join(printed).endswith("\n")
    live.wait_until_gone()


def test_what_goes_wrong_is_said(
    start: Callable[..., Live], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    live = start(live_start_s=0.2, live_lease_s=3)
    with pytest.raises(InvalidInput, match="no such file"):
        run(ask(live, tmp_path / "nothing.wav"))
    with pytest.raises(Unauthenticated, match="--key"):
        run(ask(live, SPEECH, key="sk-wrong"))
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        run(ask(live, SPEECH, server="http://127.0.0.1:9"))
    with pytest.raises(InvalidInput, match="scriptorium up"):
        run(ask(live, SPEECH, server=None, data=tmp_path))
    noise = tmp_path / "text.wav"
    noise.write_text("This is no recording.")
    assert run(ask(live, noise)) == 1
    assert "format" in capsys.readouterr().err
    assert run(ask(live, SPEECH, model="nobody")) == 1
    assert "nobody" in capsys.readouterr().err
    assert run(ask(live, SPEECH)) == 1  # nobody works
    assert "No worker" in capsys.readouterr().err


def test_turns_are_printed_one_after_the_other_however_they_come() -> None:
    texts: list[str] = []
    script = Script(texts.append)
    base = "conversation.item.input_audio_transcription"

    def say(kind: str, item: str, **fields: str) -> None:
        script.follow({"type": kind, "item_id": item, **fields})

    say("input_audio_buffer.speech_started", "a")
    say(f"{base}.delta", "a", delta=" one")
    say("input_audio_buffer.speech_stopped", "a")
    say("input_audio_buffer.committed", "a")
    say("input_audio_buffer.speech_started", "b")
    say(f"{base}.delta", "b", delta="three")
    assert "".join(texts) == "one"
    say(f"{base}.completed", "a", transcript=" one two")
    assert "".join(texts) == "one two\nthree"
    assert not script.is_complete
    say("input_audio_buffer.committed", "b")  # by our farewell
    say(f"{base}.completed", "b", transcript="three")
    assert "".join(texts) == "one two\nthree\n"
    assert script.is_complete
    script = Script(texts.append)
    code = "input_audio_buffer_commit_empty"
    script.follow({"type": "error", "error": {"event_id": FAREWELL, "code": code, "message": "m"}})
    assert script.is_complete
    assert script.failures == []
