"""What a connection makes of its worker's messages, and of a client. No socket is there."""

from types import SimpleNamespace
from uuid import UUID

import anyio
import pytest
import uvicorn

from api.realtime.config import Options
from api.realtime.connection import BEATS_PER_LEASE, MAX_QUEUED, Connection
from api.realtime.uplink import ROOM_WAIT_S
from core.live import Told, dump_message
from core.settings import Settings


@pytest.fixture
def connection(tmp_path) -> Connection:
    settings = Settings(data_dir=tmp_path, models="tiny=/nowhere")
    return Connection(
        socket=None,
        context=SimpleNamespace(settings=settings, metrics=None),
        store=None,
        key_id=UUID(int=0),
        options=Options.default(settings, None),
        is_beta=False,
    )


def delta(seq: int) -> bytes:
    return dump_message(Told.DELTA, seq, {"item_id": "item", "delta": "x"}).encode()


def test_a_client_that_does_not_read_costs_a_bounded_queue(connection: Connection) -> None:
    for seq in range(1, 2 * MAX_QUEUED):
        connection.hear(delta(seq))
    assert len(connection._messages) == MAX_QUEUED
    assert connection._loss.code == "client_too_slow"


def test_a_client_that_takes_nothing_is_too_slow_and_not_gone(
    connection: Connection, monkeypatch
) -> None:
    monkeypatch.setattr("api.realtime.connection.SEND_TIMEOUT_S", 0.01)
    connection._socket = SimpleNamespace(send_text=lambda _event: anyio.sleep_forever())
    assert not anyio.run(connection._guard, connection._greet)
    assert connection._end.code == "client_too_slow"


def test_a_gap_is_noticed_and_the_first_loss_is_the_one_told(connection: Connection) -> None:
    connection.hear(delta(1))
    assert connection._loss is None
    connection.hear(delta(3))
    connection.lose()
    assert connection._loss.code == "events_lost"
    assert len(connection._messages) == 1


def test_audio_waits_for_room_until_a_lost_worker_is_noticed_and_pings_are_not_missed(
    connection: Connection,
) -> None:
    lease_s = connection._settings.live_lease_s
    ping_timeout_s = uvicorn.Config("api.main:create_app").ws_ping_timeout
    assert lease_s * (1 + 1 / BEATS_PER_LEASE) < ROOM_WAIT_S < ping_timeout_s
