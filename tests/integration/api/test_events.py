"""Events over SSE and WebSocket: every one once, in order, whatever happens to Redis or clients."""

import asyncio
import itertools
import json
import logging
import threading
from collections.abc import Iterator
from uuid import UUID

import httpx
import pytest
from fastapi.testclient import TestClient
from redis import Redis
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from api.app import create_app
from api.context import ApiContext
from api.metrics import Metrics
from api.middleware import RequestContext
from api.server import GRACE_S, ApiServer
from core.transcript import Segment
from tests.integration.api.conftest import client_of, make_key
from tests.integration.api.fakes import HELLO, complete, finish_now, start, tell
from tests.integration.api.servers import Server
from tests.integration.api.test_jobs import post
from tests.support.processes import free_port, wait_for

TYPES = [
    "job.updated", "job.updated", "transcript.segment", "transcript.segment",
    "transcript.text.done", "job.completed",
]  # fmt: skip


def parse(text: str) -> list[dict]:
    """Return the events of a complete SSE body, and check that id, event and data agree."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" not in fields:
            continue
        event = json.loads(fields["data"])
        assert (fields["id"], fields["event"]) == (str(event["seq"]), event["type"])
        events.append(event)
    return events


def read_events(server: Server, job_id: str, **headers: str) -> Iterator[dict]:
    url = f"{server.url}/v1/jobs/{job_id}/events"
    with httpx.stream("GET", url, headers=server.headers | headers, timeout=60) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def upload(server: Server) -> str:
    from tests.integration.api.conftest import SPEECH

    response = httpx.post(
        f"{server.url}/v1/jobs",
        files={"file": ("a.wav", SPEECH.read_bytes())},
        headers=server.headers,
        timeout=60,
    )
    assert response.status_code == 202, response.text
    return response.json()["id"]


def test_an_ended_jobs_events_are_replayed_from_any_seq(client: TestClient, context: ApiContext):
    job_id = post(client).json()["id"]
    finish_now(context, UUID(job_id))
    url = f"/v1/jobs/{job_id}/events"
    response = client.get(url)
    assert response.headers["Content-Type"].startswith("text/event-stream")
    events = parse(response.text)
    assert [event["type"] for event in events] == TYPES
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert events[2]["data"]["text"] == HELLO[0].text
    assert parse(client.get(url, headers={"Last-Event-ID": "4"}).text) == events[4:]
    assert parse(client.get(url, params={"after": 2}).text) == events[2:]
    assert client.get(url, headers={"Last-Event-ID": "6"}).status_code == 204
    for bad in ("x", "-1", "9" * 30):
        assert client.get(url, headers={"Last-Event-ID": bad}).status_code == 400
    assert client.get(url, params={"after": 2**70}).status_code == 422


def test_events_arrive_while_the_job_runs(server: Server, sqlite_context: ApiContext):
    job_id = upload(server)
    events = read_events(server, job_id)
    assert next(events)["data"]["status"] == "queued"
    start(sqlite_context, UUID(job_id))
    assert next(events)["data"]["status"] == "running"
    for segment in HELLO:
        tell(sqlite_context, UUID(job_id), segment)
        assert next(events)["data"]["text"] == segment.text
    complete(sqlite_context, UUID(job_id))
    assert [event["type"] for event in events] == ["transcript.text.done", "job.completed"]


def test_a_retried_job_goes_on_where_its_stream_had_ended(
    sqlite_client: TestClient, sqlite_context: ApiContext
):
    job_id = post(sqlite_client).json()["id"]
    url = f"/v1/jobs/{job_id}"
    sqlite_client.post(f"{url}/cancel")
    assert [e["type"] for e in parse(sqlite_client.get(f"{url}/events").text)][
        -1
    ] == "job.cancelled"
    sqlite_client.post(f"{url}/retry")
    finish_now(sqlite_context, UUID(job_id))
    events = parse(sqlite_client.get(f"{url}/events").text)
    assert [event["type"] for event in events] == ["job.updated", "job.cancelled", *TYPES]


def listen(server: Server, job_id: str, number: int, mine: list[dict]) -> None:
    """Read to the end, dropping the line several times on the way."""
    rounds = 0
    while not (mine and mine[-1]["type"] == "job.completed"):
        rounds += 1
        patience = (number * 7 + rounds) % 11 if rounds < 8 else 10_000
        last = {"Last-Event-ID": str(mine[-1]["seq"])} if mine else {}
        mine += itertools.islice(read_events(server, job_id, **last), patience + 1)


def test_thirty_clients_that_drop_while_redis_forgets_them_get_every_event_once(
    server: Server, sqlite_context: ApiContext, redis_url: str
):
    """Redis loses its clients again and again; readers drop and come back with Last-Event-ID."""
    job_id = upload(server)
    received: list[list[dict]] = [[] for _ in range(30)]
    threads = [
        threading.Thread(target=listen, args=(server, job_id, number, mine))
        for number, mine in enumerate(received)
    ]
    for thread in threads:
        thread.start()
    start(sqlite_context, UUID(job_id))
    segments = tuple(
        Segment(text=f"Phrase {i}.", start_ms=i * 20, end_ms=i * 20 + 10) for i in range(60)
    )
    with Redis.from_url(redis_url) as redis:
        for index, segment in enumerate(segments):
            tell(sqlite_context, UUID(job_id), segment)
            if index % 10 == 5:
                redis.client_kill_filter(_type="pubsub")
    complete(sqlite_context, UUID(job_id), segments)
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    for events in received:
        assert [event["seq"] for event in events] == list(range(1, len(segments) + 5))


def test_a_deleted_jobs_stream_ends(server: Server, sqlite_context: ApiContext, monkeypatch):
    import api.job_events

    monkeypatch.setattr(api.job_events, "HEARTBEAT_S", 0.2)
    job_id = upload(server)
    events = read_events(server, job_id)
    next(events)
    httpx.delete(f"{server.url}/v1/jobs/{job_id}", headers=server.headers)
    assert list(events) == []


def test_a_lost_publication_is_found_at_the_next_heartbeat(
    server: Server, sqlite_context: ApiContext, redis_url: str, monkeypatch
):
    import api.job_events

    monkeypatch.setattr(api.job_events, "HEARTBEAT_S", 0.2)
    job_id = upload(server)
    events = read_events(server, job_id)
    next(events)
    monkeypatch.setattr(sqlite_context.publisher, "publish", lambda *_events: None)
    finish_now(sqlite_context, UUID(job_id))
    assert [event["type"] for event in events] == TYPES[1:]


def test_publications_with_holes_are_filled_from_the_database(
    server: Server, sqlite_context: ApiContext, monkeypatch
):
    job_id = upload(server)
    events = read_events(server, job_id)
    next(events)
    publish = sqlite_context.publisher.publish

    def publish_some(*events):
        publish(*(event for event in events if event.seq % 3))

    monkeypatch.setattr(sqlite_context.publisher, "publish", publish_some)
    finish_now(sqlite_context, UUID(job_id))
    assert [event["seq"] for event in events] == [2, 3, 4, 5, 6]


def test_a_websocket_carries_the_same_events(sqlite_client: TestClient, sqlite_context: ApiContext):
    job_id = post(sqlite_client).json()["id"]
    received = []
    with sqlite_client.websocket_connect(f"/v1/jobs/{job_id}/ws") as socket:
        received.append(socket.receive_json())
        finish_now(sqlite_context, UUID(job_id))
        received += [socket.receive_json() for _ in range(5)]
        with pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_json()
    assert closed.value.code == 1000
    assert received == parse(sqlite_client.get(f"/v1/jobs/{job_id}/events").text)
    for query, headers in [("?after=4", {}), ("?after=1", {"Last-Event-ID": "4"})]:
        address = f"/v1/jobs/{job_id}/ws{query}"
        with sqlite_client.websocket_connect(address, headers=headers) as socket:
            assert socket.receive_json() == received[4]


def test_a_websocket_is_refused_with_the_same_problems(
    sqlite_client: TestClient, sqlite_context: ApiContext
):
    from starlette.testclient import WebSocketDenialResponse

    job_id = post(sqlite_client).json()["id"]
    stranger = client_of(sqlite_context, make_key(sqlite_context))
    nobody = client_of(sqlite_context, None)
    for client, path, status in [
        (stranger, f"/v1/jobs/{job_id}/ws", 404),
        (sqlite_client, "/v1/jobs/nonsense/ws", 404),
        (nobody, f"/v1/jobs/{job_id}/ws", 401),
        (nobody, f"/v1/jobs/{job_id}/ws?after=x", 401),
        (sqlite_client, f"/v1/jobs/{job_id}/ws?after=-1", 400),
        (sqlite_client, f"/v1/jobs/{job_id}/ws?since=4", 400),
    ]:
        with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(path):
            pass
        assert refused.value.status_code == status


def test_a_browsers_subprotocol_is_chosen_and_never_its_key(
    server: Server, sqlite_context: ApiContext
):
    job_id = upload(server)
    finish_now(sqlite_context, UUID(job_id))
    address = f"{server.url.replace('http', 'ws', 1)}/v1/jobs/{job_id}/ws"
    key = f"openai-insecure-api-key.{server.key}"
    for offered, chosen in (([key, "realtime"], "realtime"), ([key], None)):
        with connect(address, subprotocols=offered) as socket:
            assert json.loads(socket.recv())["type"] == "job.updated"
            assert socket.subprotocol == chosen


def test_a_websocket_that_is_not_read_ends_otherwise_than_one_that_is_complete(
    sqlite_client: TestClient, sqlite_context: ApiContext, monkeypatch
):
    monkeypatch.setattr("api.routes.events.SEND_TIMEOUT_S", 0.05)
    job_id = post(sqlite_client).json()["id"]
    finish_now(sqlite_context, UUID(job_id))
    incoming = iter([{"type": "websocket.connect"}])
    sent = []

    async def receive() -> dict:
        return next(incoming, None) or await asyncio.Event().wait()

    async def send(message: dict) -> None:
        sent.append(message)
        if message["type"] == "websocket.send":
            await asyncio.Event().wait()  # as a full socket does
        if message["type"] == "websocket.close":
            raise RuntimeError  # as the server does where its ping was not answered either

    scope = {
        "type": "websocket",
        "path": f"/v1/jobs/{job_id}/ws",
        "query_string": b"",
        "headers": [(b"authorization", sqlite_client.headers["Authorization"].encode())],
        "subprotocols": [],
    }
    asyncio.run(sqlite_client.app(scope, receive, send))
    kinds = [message["type"] for message in sent]
    assert kinds == ["websocket.accept", "websocket.send", "websocket.close"]
    assert (sent[-1]["code"], sent[-1]["reason"]) == (1008, "client_too_slow")


def test_a_refused_websocket_leaves_no_error_in_the_log(server: Server):
    records: list[logging.LogRecord] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, listener = logging.getLogger("uvicorn.error"), Listener()
    logger.addHandler(listener)
    address = server.url.replace("http", "ws", 1)
    try:
        for path in ("/v1/jobs/nonsense/ws", "/v1/realtime", "/v1/no/such/socket"):
            with pytest.raises(InvalidStatus), connect(f"{address}{path}"):
                pass
        httpx.get(f"{server.url}/health/live")  # what the sockets logged is there by now
    finally:
        logger.removeHandler(listener)
    assert [r.getMessage() for r in records if r.levelno >= logging.WARNING] == []


def test_a_client_that_leaves_before_the_handshake_is_no_crash():
    async def leave(_scope, _receive, _send) -> None:
        raise WebSocketDisconnect(1006)

    served = RequestContext(leave, metrics=Metrics())
    scope = {"type": "websocket", "path": "/v1/realtime", "headers": []}
    asyncio.run(served(scope, None, None))


def test_a_reader_that_lags_loses_its_queue_but_no_event():
    import asyncio
    from uuid import uuid4

    from api.hub import MAX_QUEUED, EventHub, LiveEvent
    from core.events import EventType

    async def run() -> None:
        hub = EventHub("redis://127.0.0.1:1")
        with hub.subscribe(uuid4()) as subscription:
            for seq in range(MAX_QUEUED + 50):
                subscription.offer(LiveEvent(seq, EventType.SEGMENT, "{}"))
            assert await subscription.take(timeout_s=1) is None
            assert await subscription.take(timeout_s=0.01) == []

    asyncio.run(run())


def test_followers_are_sent_away_whole_when_the_server_ends(sqlite_context: ApiContext, caplog):
    port = free_port()
    served = ApiServer(create_app(sqlite_context), host="127.0.0.1", port=port, log_config=None)
    serving = threading.Thread(target=served.run)
    serving.start()
    try:
        wait_for(lambda: served.started, what="uvicorn answers")
        server = Server(url=f"http://127.0.0.1:{port}", key=make_key(sqlite_context))
        job_id = upload(server)
        address = f"ws://127.0.0.1:{port}/v1/jobs/{job_id}/ws"
        with connect(address, additional_headers=server.headers) as socket:
            assert json.loads(socket.recv(timeout=20))["seq"] == 1
            seen = []
            for event in read_events(server, job_id):  # raises if the body is cut off
                seen.append(event["seq"])
                served.should_exit = True
            assert seen == [1]
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=20)
            assert closed.value.rcvd.code == 1012
        serving.join(timeout=GRACE_S - 1)
        assert not serving.is_alive()
        assert "Exception in ASGI application" not in caplog.text
    finally:
        served.should_exit = True
        serving.join(timeout=30)
