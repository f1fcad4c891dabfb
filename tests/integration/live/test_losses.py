"""Whatever is lost in the middle of a session, the client is told and nothing is left behind."""

import json
import threading
from collections.abc import Callable

import pytest

from core.live import Entry, LiveConfig, Sent, audio_key, session_key, waiting_key
from tests.integration.live.conftest import Live
from tests.integration.live.test_realtime import MANUAL
from tests.integration.live.test_strangers import refusal
from tests.support.live import Ear
from tests.support.pipeline import MODEL, noise
from tests.support.processes import wait_for
from tests.support.valkey import ValkeyServer


@pytest.fixture
def live(start: Callable[..., Live]) -> Live:
    """A server with one worker, each of which soon misses the other."""
    live = start(live_lease_s=3)
    live.work()
    return live


def speaking(live: Live):
    """Return a client whose first half second was heard."""
    client = live.connect()
    client.update(**MANUAL)
    client.append(noise(0.5))
    client.wait_for("conversation.item.input_audio_transcription.delta")
    return client


def test_a_client_that_leaves_leaves_nothing(start: Callable[..., Live]) -> None:
    live = start()  # nothing expires before the test's patience does
    live.work()
    [host] = live.hosts
    client = speaking(live)
    assert host.is_busy
    names = live.kept()
    assert len(names) == 4  # the session, its audio, its worker, its place among the key's
    assert [name for name in names if not 0 < live.redis.pttl(name) <= 60_000] == []
    client.socket.close()
    wait_for(lambda: not live.kept(), what="the session's keys are gone")
    wait_for(lambda: not host.is_busy, what="the worker has forgotten it")


def test_a_worker_forgets_a_session_whose_server_died(start: Callable[..., Live]) -> None:
    live = start(live_lease_s=3)
    config = Entry(kind=Sent.CONFIG, data=LiveConfig(model=MODEL, turns=None).to_json().encode())
    # What a server writes that is killed before it renews anything.
    live.redis.set(session_key("orphan"), MODEL, ex=60)
    live.redis.xadd(audio_key("orphan"), config.fields())
    live.redis.zadd(waiting_key(MODEL), {"orphan": 0})
    live.work()
    [host] = live.hosts
    wait_for(lambda: host.is_busy, what="the worker has claimed it")
    live.redis.expire(session_key("orphan"), 0)
    wait_for(lambda: not host.is_busy, what="the worker has noticed")
    wait_for(lambda: not live.kept(), what="its keys are gone")


def test_a_worker_that_dies_is_reported(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    client = speaking(live)
    # It stops in the middle, as after a kill: nothing is told, nothing is renewed.
    monkeypatch.setattr("workers.live.desk.Desk._beat", lambda _desk: None)
    error, code = client.wait_for_end()
    assert (error["type"], error["error"]["code"], code) == ("error", "worker_lost", 1011)
    wait_for(
        lambda: [name for name in live.kept() if not name.endswith((":audio", ":worker"))] == [],
        what="what the server renewed is gone",
    )


def test_a_worker_that_is_stopped_says_so(live: Live) -> None:
    client = speaking(live)
    live.hosts[0].stop()
    error, code = client.wait_for_end()
    assert (error["error"]["code"], error["error"]["type"]) == ("worker_stopping", "server_error")
    assert code == 1012
    wait_for(lambda: not live.kept(), what="the session's keys are gone")


@pytest.mark.parametrize("sends", [True, False], ids=["speaking", "silent"])
def test_a_redis_that_forgets_everything_is_reported(live: Live, sends: bool) -> None:
    [host] = live.hosts
    client = speaking(live)
    live.redis.flushall()
    if sends:
        client.append(noise(0.1))
    error, code = client.wait_for_end()
    assert (error["error"]["code"], code) == ("session_lost", 1011)
    wait_for(lambda: not host.is_busy and not live.kept(), what="both sides have forgotten it")


def test_a_redis_that_dies_is_reported_and_sessions_come_again(
    start: Callable[..., Live], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.realtime.HUB_WAIT_S", 0.1)
    with ValkeyServer(tmp_path / "valkey") as server:
        live = start(redis_url=server.url, live_lease_s=3)
        live.work()
        client = speaking(live)
        server.crash()
        error, code = client.wait_for_end()
        assert error["error"]["code"] in ("events_lost", "service_unavailable")
        assert code == 1011
        assert refusal(live) == (503, "service_unavailable")
        server.start()
        live.wait_until_connects()
        speaking(live)


def test_a_session_without_a_worker_is_given_up(start: Callable[..., Live]) -> None:
    live = start(live_start_s=0.5, live_lease_s=3)
    client = live.connect()
    client.update(**MANUAL)
    client.append(noise(0.5))
    error, code = client.wait_for_end()
    assert (error["error"]["code"], code) == ("no_worker", 1013)
    wait_for(lambda: not live.kept(), what="the session's keys are gone")


def test_a_lost_wake_up_loses_no_session(start: Callable[..., Live]) -> None:
    live = start(live_lease_s=3)
    client = live.connect()
    client.update(**MANUAL)
    client.append(noise(0.5))
    wait_for(lambda: live.redis.exists(waiting_key(MODEL)), what="the session waits")
    live.redis.delete(waiting_key(MODEL), f"live:wake:{MODEL}")
    live.work()
    client.wait_for("conversation.item.input_audio_transcription.delta")


def test_a_full_worker_takes_the_next_session_when_one_ends(start: Callable[..., Live]) -> None:
    live = start(live_sessions=1)
    live.work()
    first = speaking(live)
    second = live.connect()
    second.update(**MANUAL)
    second.append(noise(0.5))
    wait_for(lambda: live.redis.zcard(waiting_key(MODEL)) == 1, what="the second waits")
    first.socket.close()
    second.wait_for("conversation.item.input_audio_transcription.delta")


def test_a_model_that_cannot_stream_is_named(
    start: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start()

    def refuse(_adapter):
        raise TypeError("this one does not stream")

    monkeypatch.setattr("workers.live.stepper.start_streaming", refuse)
    live.work()
    client = live.connect()
    client.update(**MANUAL)
    client.append(noise(0.5))
    error, _code = client.wait_for_end()
    assert error["error"]["code"] == "model_not_live"
    assert "does not stream" in error["error"]["message"]


def test_audio_that_nobody_hears_is_refused_before_it_piles_up(
    start: Callable[..., Live], ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.realtime.uplink.ROOM_WAIT_S", 0.3)
    gate = threading.Event()
    ear.before = lambda _streams: gate.wait(30) and None
    live = start(live_buffer_s=2, live_start_s=5)
    live.work()
    client = live.connect()
    client.update(**MANUAL)
    for number in range(30):
        client.append(noise(0.25), event_id=f"piece {number}")
    error, code = client.wait_for_end()
    gate.set()
    assert (error["error"]["code"], code) == ("input_audio_buffer_full", 1008)
    # 2 s are 8 pieces; which one is refused does not depend on luck.
    assert error["error"]["event_id"] == "piece 8"


def test_crumbs_of_audio_do_not_pile_up_either(start: Callable[..., Live]) -> None:
    live = start(live_buffer_s=1, live_start_s=1)  # nobody works
    client = live.connect()
    client.update(**MANUAL)
    for number in range(120):
        client.append_bytes(b"\0\0", event_id=f"crumb {number}")
    error, code = client.wait_for_end()
    assert (error["error"]["code"], code) == ("input_audio_buffer_full", 1008)
    assert error["error"]["event_id"] == "crumb 100"


def test_a_fast_client_is_slowed_down_instead(start: Callable[..., Live]) -> None:
    live = start(live_buffer_s=2)
    live.work()
    client = live.connect()
    client.update(**MANUAL)
    for _ in range(40):
        client.append(noise(0.25))
    client.send("input_audio_buffer.commit")
    done = client.wait_for("conversation.item.input_audio_transcription.completed")
    assert done["transcript"] == " 8000" * 20
    [audio] = [name for name in live.kept() if name.endswith(":audio")]
    wait_for(lambda: live.redis.xlen(audio) == 0, what="what was read is deleted")


def test_a_broken_subscription_is_reported(live: Live) -> None:
    client = speaking(live)
    live.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    error, code = client.wait_for_end()
    assert (error["error"]["code"], code) == ("events_lost", 1011)


def test_a_lost_event_is_not_passed_over(live: Live) -> None:
    client = speaking(live)
    [audio] = [name for name in live.kept() if name.endswith(":audio")]
    message = {"type": "delta", "seq": 99, "item_id": "item", "delta": "what came before is lost"}
    live.redis.publish(audio.replace(":audio", ":events"), json.dumps(message))
    error, code = client.wait_for_end()
    assert (error["error"]["code"], code) == ("events_lost", 1011)


def test_a_session_ends_when_its_time_is_over(start: Callable[..., Live]) -> None:
    live = start(live_session_s=1)
    live.work()
    error, code = live.connect().wait_for_end()
    assert (error["error"]["code"], code) == ("session_expired", 1008)
