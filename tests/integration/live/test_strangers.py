"""Who may open a live session, and what is said to clients that talk nonsense."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from api.realtime import config
from tests.integration.api.conftest import make_key
from tests.integration.live.conftest import Live
from tests.integration.live.test_realtime import MANUAL
from tests.support.live import LiveClient
from tests.support.pipeline import noise


def refusal(live: Live, **options) -> tuple[int, str]:
    """Return status and code of a refused handshake."""
    with pytest.raises(InvalidStatus) as caught:
        live.connect(**options)
    response = caught.value.response
    return response.status_code, json.loads(response.body)["error"]["code"]


def test_a_key_with_the_right_scope_is_needed(start: Callable[..., Live]) -> None:
    live = start()
    assert refusal(live, key=None) == (401, "unauthenticated")
    assert refusal(live, key="sk-wrong") == (401, "unauthenticated")
    assert refusal(live, key=make_key(live.context, "read")) == (403, "forbidden")
    assert refusal(live, query="") == (400, "invalid_option")
    assert refusal(live, query="intent=conversation") == (400, "invalid_option")
    assert refusal(live, query="intent=transcription&model=gpt-5") == (404, "model_not_found")
    assert live.kept() == []


def test_a_browser_may_put_its_key_into_a_subprotocol(start: Callable[..., Live]) -> None:
    live = start()
    key = f"openai-insecure-api-key.{live.server.key}"
    client = live.connect(key=None, subprotocols=["realtime", key])
    assert client.socket.subprotocol == "realtime"  # never the key
    assert client.receive()["type"] == "session.created"
    wrong = ["realtime", "openai-insecure-api-key.sk-wrong"]
    assert refusal(live, key=None, subprotocols=wrong) == (401, "unauthenticated")


def test_sessions_of_a_key_and_of_a_server_are_limited(start: Callable[..., Live]) -> None:
    live = start(live_sessions_per_key=2, live_connections=3)
    held = [live.connect() for _ in range(2)]
    assert refusal(live) == (429, "limit_exceeded")
    other = make_key(live.context)
    held.append(live.connect(key=other))
    assert refusal(live, key=other) == (429, "limit_exceeded")  # the server is full
    for client in held:
        assert client.receive()["type"] == "session.created"
        client.socket.close()
    live.wait_until_connects()


NONSENSE = [
    ("{", "invalid_event", None),
    ("[]", "invalid_event", None),
    ("[" * 100_000, "invalid_event", None),
    (b"\x00\x01", "invalid_event", None),
    ({"type": "response.create"}, "invalid_event", "type"),
    ({"type": ["session.update"]}, "invalid_event", "type"),
    ({}, "invalid_event", "type"),
    ({"type": "input_audio_buffer.append"}, "invalid_event", "audio"),
    ({"type": "input_audio_buffer.append", "audio": 7}, "invalid_event", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "garbage!"}, "invalid_event", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "invalid_event", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "", "gain": 2}, "invalid_event", "gain"),
    ({"type": "input_audio_buffer.commit", "event_id": 5}, "invalid_event", "event_id"),
    ({"type": "input_audio_buffer.commit", "event_id": "\ud800"}, "invalid_event", "event_id"),
]
BAD_SETTINGS = [
    ({"type": "realtime"}, "session.type"),
    ({"voice": "alloy"}, "session.voice"),
    ({"include": ["item.input_audio_transcription.words"]}, "session.include.0"),
    ({"audio": {"output": {}}}, "session.audio.output"),
    ({"audio": {"input": {"format": {"type": "audio/opus"}}}}, "session.audio.input.format.type"),
    ({"audio": {"input": {"format": {"rate": 8000}}}}, "session.audio.input.format.rate"),
    (
        {"audio": {"input": {"format": {"type": "audio/pcmu", "rate": 16000}}}},
        "session.audio.input.format.rate",
    ),
    (
        {"audio": {"input": {"noise_reduction": {"type": "loud"}}}},
        "session.audio.input.noise_reduction.type",
    ),
    (
        {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "threshold": 0.5}}}},
        "session.audio.input.turn_detection.threshold",
    ),
    (
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "eagerness": "low"}}}},
        "session.audio.input.turn_detection.eagerness",
    ),
    (
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}}},
        "session.audio.input.turn_detection.threshold",
    ),
    (
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": True}}}},
        "session.audio.input.turn_detection.create_response",
    ),
    ({"audio": {"input": {"transcription": {"language": "klingon"}}}}, "language"),
    ({"audio": {"input": {"transcription": {"model": "nobody"}}}}, "model"),
    ({"audio": {"input": {"transcription": {"prompt": "\0"}}}}, "prompt"),
    ("nothing", "session"),
]


def test_where_the_filter_is_not_installed_noise_reduction_is_refused_by_name(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "can_reduce_noise", lambda: False)
    client = live.connect()
    wanted = {"audio": {"input": {"noise_reduction": {"type": "near_field"}}}}

    client.send("session.update", session=wanted)

    assert client.receive_until_error()["error"]["param"] == "noise_reduction"
    client.update(noise_reduction=None, **MANUAL)


def test_nonsense_is_answered_by_name_and_the_session_goes_on(live: Live) -> None:
    client = live.connect()
    assert client.receive()["type"] == "session.created"
    for message, code, param in NONSENSE:
        is_event = isinstance(message, dict)
        client.socket.send(json.dumps({"event_id": "mine"} | message) if is_event else message)
        error = client.receive_until_error()["error"]
        assert (error["code"], error["param"]) == (code, param), message
        knows_id = is_event and param != "event_id"
        assert error["event_id"] == ("mine" if knows_id else None), message
    for session, param in BAD_SETTINGS:
        client.send("session.update", session=session, event_id="mine")
        error = client.receive_until_error()["error"]
        assert (error["param"], error["event_id"]) == (param, "mine"), session
        assert error["type"] == "invalid_request_error"
    assert {event["type"] for event in client.events} == {"session.created", "error"}
    client.update(**MANUAL)
    assert client.receive()["session"]["audio"]["input"]["turn_detection"] is None
    hear(client)


def hear(client: LiveClient) -> None:
    client.append(noise(0.5))
    client.send("input_audio_buffer.commit")
    client.wait_for("conversation.item.input_audio_transcription.completed")


def test_settings_change_between_turns_but_the_model_does_not(live: Live) -> None:
    client = live.connect()
    client.update(**MANUAL)
    hear(client)
    client.update(transcription={"model": "whisper-1"})  # the same one under another name
    client.update(format={"type": "audio/pcm", "rate": 48_000})
    client.append(np.repeat(noise(0.5), 3))
    client.send("input_audio_buffer.commit")
    done = client.wait_for("conversation.item.input_audio_transcription.completed")
    assert done["transcript"] == " 8000"


@pytest.mark.parametrize("size", ["more than may wait", "more than a frame may hold"])
def test_a_huge_frame_ends_the_session(start: Callable[..., Live], size: str) -> None:
    live = start(live_buffer_s=1)
    client = live.connect()
    client.receive()
    if size == "more than may wait":
        client.append_bytes(bytes(2 * 24_000 * 2))
        error, code = client.wait_for_end()
        assert (error["error"]["code"], code) == ("input_audio_buffer_full", 1008)
    else:
        client.append_bytes(bytes(13 * 1024**2))
        _last, code = client.wait_for_end()
        assert code == 1009
    live.wait_until_connects()


def test_open_sessions_are_counted(live: Live) -> None:
    client = live.connect()
    client.update(**MANUAL)
    hear(client)

    def metric(name: str, **labels: str) -> float:
        text = live.context.metrics.render(live.context.sessions).decode()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return sum(s.value for s in samples if s.name == name and s.labels == labels)

    assert metric("scriptorium_live_sessions") == 1
    assert metric("scriptorium_live_audio_seconds_total") == 0.5
    client.socket.close()
    live.wait_until_gone()
    assert metric("scriptorium_live_sessions") == 0
    assert metric("scriptorium_live_ended_total", reason="client") == 1
