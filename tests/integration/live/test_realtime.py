"""OpenAI's realtime transcription events: what is said, in which order, to whom."""

import asyncio
import base64
import io
import threading

import numpy as np
import pytest
import soundfile
import soxr
from openai import AsyncOpenAI

from tests.integration.live.conftest import Live
from tests.support.live import CHUNK, Ear
from tests.support.pipeline import MODEL, noise
from tests.support.processes import wait_for

MANUAL = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}


def test_a_detected_turn_is_told_in_order(live: Live, ear: Ear, speech: np.ndarray) -> None:
    client = live.connect()
    client.update(format={"type": "audio/pcm", "rate": 16_000})
    for at in range(0, len(speech), 1_600):
        client.append(speech[at : at + 1_600])
    done = client.wait_for("conversation.item.input_audio_transcription.completed")

    told = [name for name in client.types() if name != "delta"]
    assert told == [
        "session.created", "session.updated", "speech_started", "speech_stopped", "committed",
        "conversation.item.added", "conversation.item.done", "completed",
    ]  # fmt: skip
    by_type = dict(zip(client.types(), client.events, strict=True))
    started, stopped = by_type["speech_started"], by_type["speech_stopped"]
    assert started["audio_start_ms"] < 200
    assert 1_600 < stopped["audio_end_ms"] < 2_200  # half a second after the last word
    assert len({e["item_id"] for e in client.events if "item_id" in e}) == 1
    assert len({e["event_id"] for e in client.events}) == len(client.events)
    deltas = [e["delta"] for e in client.events if e["type"].endswith(".delta")]
    assert "".join(deltas) == done["transcript"] != ""
    span_ms = stopped["audio_end_ms"] - started["audio_start_ms"]
    assert done["usage"] == {"type": "duration", "seconds": pytest.approx(span_ms / 1000)}
    [stream] = ear.streams
    assert len(stream.samples) == span_ms * 16


@pytest.mark.parametrize("rate", [16_000, 24_000, 48_000])
def test_the_model_hears_what_was_sent_at_any_rate(live: Live, ear: Ear, rate: int) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    client = live.connect()
    client.update(format={"type": "audio/pcm", "rate": rate}, turn_detection=None)
    for at in range(0, rate, 777):
        client.append(tone[at : at + 777])
    client.send("input_audio_buffer.commit")
    client.wait_for("conversation.item.input_audio_transcription.completed")

    [stream] = ear.streams
    expected = 0.3 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    assert abs(len(stream.samples) - 16_000) <= 2
    middle = slice(500, 15_500)
    assert np.abs(stream.samples[middle] - expected[middle]).max() < 1e-3


@pytest.mark.parametrize(("kind", "subtype"), [("audio/pcmu", "ULAW"), ("audio/pcma", "ALAW")])
def test_telephony_is_heard(live: Live, ear: Ear, kind: str, subtype: str) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)
    file = io.BytesIO()
    soundfile.write(file, tone, 8_000, format="RAW", subtype=subtype)
    data = file.getvalue()
    client = live.connect()
    client.update(format={"type": kind}, turn_detection=None)
    for at in range(0, len(data), 777):  # an odd number of bytes is a whole number of samples
        client.append_bytes(data[at : at + 777])
    client.send("input_audio_buffer.commit")
    done = client.wait_for("conversation.item.input_audio_transcription.completed")

    assert done["usage"]["seconds"] == pytest.approx(1.0, abs=0.001)
    [stream] = ear.streams
    expected = 0.3 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    middle = slice(500, 15_500)
    assert np.abs(stream.samples[middle] - expected[middle]).max() < 0.02  # what the law costs


def test_eagerness_is_how_much_silence_ends_a_turn(live: Live, speech: np.ndarray) -> None:
    said = np.concatenate((speech, np.zeros(16_000, np.float32)))  # two seconds of silence
    ends = {}
    for eagerness in ("high", "auto"):
        client = live.connect()
        turns = {"type": "semantic_vad", "eagerness": eagerness, "create_response": False}
        client.update(format={"type": "audio/pcm", "rate": 16_000}, turn_detection=turns)
        client.append(said)
        stopped = client.wait_for("input_audio_buffer.speech_stopped")
        ends[eagerness] = stopped["audio_end_ms"]
        shown = client.events[1]["session"]["audio"]["input"]["turn_detection"]
        assert shown == {"type": "semantic_vad", "eagerness": eagerness}
    assert ends["auto"] - ends["high"] == pytest.approx(500, abs=33)  # a frame


def test_log_probabilities_come_with_the_text_that_they_spell(live: Live) -> None:
    client = live.connect()
    include = ["item.input_audio_transcription.logprobs"]
    session = {"type": "transcription", "audio": {"input": MANUAL}, "include": include}
    client.send("session.update", session=session)
    client.append(noise(1.25))
    client.send("input_audio_buffer.commit")
    done = client.wait_for("conversation.item.input_audio_transcription.completed")

    deltas = [e for e in client.events if e["type"].endswith(".delta")]
    assert client.events[1]["session"]["include"] == include
    assert [d["logprobs"] for d in deltas] == [
        [{"token": d["delta"], "bytes": list(d["delta"].encode()), "logprob": -0.5}] for d in deltas
    ]
    assert "".join(each["token"] for each in done["logprobs"]) == done["transcript"] != ""
    client.send("session.update", session={"include": None})
    client.append(noise(0.5))
    client.send("input_audio_buffer.commit")
    assert "logprobs" not in client.wait_for(
        "conversation.item.input_audio_transcription.completed"
    )


def test_noise_is_taken_out_before_anybody_listens(live: Live, ear: Ear) -> None:
    loud = 0.1 * noise(3.0)
    client = live.connect()
    client.update(**MANUAL, noise_reduction={"type": "far_field"})
    client.append(loud)
    client.send("input_audio_buffer.commit")
    client.wait_for("conversation.item.input_audio_transcription.completed")
    client.update(noise_reduction=None)
    client.append(loud)
    client.send("input_audio_buffer.commit")
    client.wait_for("conversation.item.input_audio_transcription.completed")

    filtered, plain = (stream.samples for stream in ear.streams)
    assert len(filtered) == len(plain) == len(loud)
    late = slice(2 * 16_000, None)
    assert np.std(filtered[late]) < 0.5 * np.std(plain[late])


def test_without_detection_the_client_ends_turns(live: Live, ear: Ear) -> None:
    transcription = {"language": "German", "prompt": "Names", "keywords": ["Ada", "Bo"]}
    client = live.connect()
    client.update(**MANUAL, transcription=transcription)
    client.send("input_audio_buffer.commit", event_id="too soon")
    client.append(noise(1.25))
    first = client.receive_until_error()
    client.send("input_audio_buffer.commit")
    one = client.wait_for("conversation.item.input_audio_transcription.completed")
    client.append(noise(0.25))
    client.send("input_audio_buffer.clear")
    client.wait_for("input_audio_buffer.cleared")
    client.append(noise(0.5))
    client.send("input_audio_buffer.commit")
    two = client.wait_for("conversation.item.input_audio_transcription.completed")

    assert first["error"] == {
        "type": "invalid_request_error",
        "code": "input_audio_buffer_commit_empty",
        "message": "The audio buffer holds nothing to commit.",
        "param": None,
        "event_id": "too soon",
    }
    assert (one["transcript"], two["transcript"]) == (" 8000 8000 4000", " 8000")
    assert "speech_started" not in client.types()
    committed = [e for e in client.events if e["type"].endswith("committed")]
    assert [e["previous_item_id"] for e in committed] == [None, one["item_id"]]
    assert [e["item_id"] for e in committed] == [one["item_id"], two["item_id"]]
    assert {(s.language, s.prompt) for s in ear.streams} == {("de", "Names Ada, Bo")}


def test_the_older_dialect_is_spoken_to_those_who_speak_it(live: Live) -> None:
    query = "intent=transcription&model=gpt-4o-realtime-preview"  # older clients must name one
    client = live.connect(query=query, headers={"OpenAI-Beta": "realtime=v1"})
    assert client.receive()["type"] == "transcription_session.created"
    client.send(
        "transcription_session.update",
        session={
            "input_audio_format": "pcm16",
            "input_audio_transcription": {"model": "gpt-4o-transcribe", "language": "en"},
            "input_audio_noise_reduction": {"type": "near_field"},
            "turn_detection": None,
            "include": ["item.input_audio_transcription.logprobs"],
        },
    )
    updated = client.receive()
    client.append(soxr.resample(noise(0.5), 16_000, 24_000))
    client.send("input_audio_buffer.commit")
    client.wait_for("conversation.item.input_audio_transcription.completed")

    assert updated["type"] == "transcription_session.updated"
    assert updated["session"]["input_audio_transcription"] == {
        "model": MODEL, "language": "en", "prompt": None,
    }  # fmt: skip
    assert updated["session"]["turn_detection"] is None
    assert updated["session"]["input_audio_noise_reduction"] == {"type": "near_field"}
    assert "conversation.item.created" in client.types()
    assert "conversation.item.added" not in client.types()


def test_openais_client_works_unchanged(live: Live, speech: np.ndarray) -> None:
    pcm = np.round(soxr.resample(speech, 16_000, 24_000) * 32767).astype("<i2").tobytes()

    async def talk() -> list:
        events = []
        async with (
            AsyncOpenAI(api_key=live.server.key, base_url=f"{live.server.url}/v1") as openai,
            openai.realtime.connect(extra_query={"intent": "transcription"}) as connection,
        ):
            await connection.session.update(
                session={
                    "type": "transcription",
                    "audio": {
                        "input": {
                            "format": {"type": "audio/pcm", "rate": 24_000},
                            "noise_reduction": {"type": "near_field"},
                            "transcription": {"model": "whisper-1", "language": "en"},
                            "turn_detection": {
                                "type": "server_vad",
                                "threshold": 0.4,
                                "prefix_padding_ms": 200,
                                "silence_duration_ms": 300,
                            },
                        }
                    },
                    "include": ["item.input_audio_transcription.logprobs"],
                }
            )
            for at in range(0, len(pcm), 9_600):
                audio = base64.b64encode(pcm[at : at + 9_600]).decode()
                await connection.input_audio_buffer.append(audio=audio)
            async for event in connection:
                events.append(event)
                if event.type == "conversation.item.input_audio_transcription.completed":
                    return events
        return events

    events = asyncio.run(asyncio.wait_for(talk(), 30))

    assert [e.type for e in events][:2] == ["session.created", "session.updated"]
    shown = events[1].session.audio.input
    assert (shown.turn_detection.threshold, shown.transcription.model) == (0.4, MODEL)
    deltas = [e.delta for e in events if e.type.endswith("transcription.delta")]
    assert "".join(deltas) == events[-1].transcript != ""
    assert shown.noise_reduction.type == "near_field"
    assert "".join(each.token for each in events[-1].logprobs) == events[-1].transcript


def test_steps_of_many_sessions_run_in_one_batch(live: Live, ear: Ear) -> None:
    gate, entered = threading.Event(), threading.Event()

    def hold(_streams) -> None:
        entered.set()
        assert gate.wait(30)

    ear.before = hold
    clients = [live.connect() for _ in range(4)]
    for client in clients:
        client.update(**MANUAL)
        client.append(noise(CHUNK / 16_000))
    assert entered.wait(30)  # the first step runs with whoever was there
    wait_for(lambda: live.redis.exists("live:waiting:" + MODEL) == 0, what="all are claimed")
    for client in clients:
        client.append(noise(CHUNK / 16_000))
        client.send("input_audio_buffer.commit")
    for client in clients:
        client.wait_for("input_audio_buffer.committed")  # told while the model is busy
    gate.set()
    texts = [
        client.wait_for("conversation.item.input_audio_transcription.completed")["transcript"]
        for client in clients
    ]

    assert texts == [" 8000 8000"] * 4
    assert max(ear.steps) == 4
    assert len(ear.steps) <= 3


def test_a_failure_stays_with_its_turn(live: Live, ear: Ear) -> None:
    def choke(streams) -> None:
        if any(stream.prompt == "poison" for stream in streams):
            raise ValueError("a bad turn")

    ear.before = choke
    ill, well = live.connect(), live.connect()
    ill.update(**MANUAL, transcription={"prompt": "poison"})
    well.update(**MANUAL)
    for client in (ill, well):
        client.append(noise(1.0))
        client.send("input_audio_buffer.commit")
    failed = ill.wait_for("conversation.item.input_audio_transcription.failed")
    done = well.wait_for("conversation.item.input_audio_transcription.completed")

    assert failed["error"]["code"] == "internal_error"
    assert "a bad turn" not in failed["error"]["message"]
    assert done["transcript"] == " 8000 8000"
    ill.update(transcription={"prompt": None})  # the session goes on
    ill.append(noise(0.5))
    ill.send("input_audio_buffer.commit")
    assert (
        ill.wait_for("conversation.item.input_audio_transcription.completed")["transcript"]
        == " 8000"
    )
