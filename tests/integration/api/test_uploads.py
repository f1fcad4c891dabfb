"""Uploads that end badly, and many at once."""

import io
import socket
import threading
import wave
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import func, select

from api.context import ApiContext
from core.db import read_session
from models import Job, Media
from tests.integration.api.conftest import SPEECH
from tests.integration.api.servers import Server
from tests.support.processes import wait_for

HALF = 3_000_000


def abort_upload(server: Server, number: int) -> None:
    """Send half of a form, then close the socket: politely or with a reset."""
    parts = urlsplit(server.url)
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {server.key}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {2 * HALF}\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.flac"\r\n\r\n'
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as client:
        client.sendall(head.encode() + b"x" * HALF)
        if number % 2:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_fifty_half_uploads_leave_nothing(server: Server, sqlite_context: ApiContext):
    for number in range(50):
        abort_upload(server, number)
    metrics, sessions = sqlite_context.metrics, sqlite_context.sessions
    ended = b'scriptorium_http_requests_total{method="POST",route="/v1/jobs",status="499"} 50.0'
    wait_for(lambda: ended in metrics.render(sessions), what="all requests have ended")
    folder = sqlite_context.settings.data_path / "storage"
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    with read_session(sqlite_context.sessions) as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0
        assert session.scalar(select(func.count()).select_from(Media)) == 0
    assert httpx.get(f"{server.url}/health/live").status_code == 200


def long_wav(num_bytes: int) -> bytes:
    """Return a valid recording of about that size."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(b"\1\0" * (num_bytes // 2))
    return buffer.getvalue()


def test_an_upload_is_never_whole_in_memory(server: Server, sqlite_context: ApiContext):
    """64 MiB arrive in blocks; the largest write to storage is a small fraction of them."""
    sizes: list[int] = []
    storage = sqlite_context.storage
    open_writer = storage.writer

    class Spy:
        def __init__(self, writer):
            self._writer = writer

        def write(self, data: bytes) -> None:
            sizes.append(len(data))
            self._writer.write(data)

    class Spying:
        def __init__(self, manager):
            self._manager = manager

        def __enter__(self):
            return Spy(self._manager.__enter__())

        def __exit__(self, *exc):
            return self._manager.__exit__(*exc)

    storage.writer = lambda key, **kw: Spying(open_writer(key, **kw))
    body = long_wav(64 << 20)
    response = httpx.post(
        f"{server.url}/v1/jobs",
        files={"file": ("a.wav", body)},
        headers=server.headers,
        timeout=120,
    )
    assert response.status_code == 202, response.text
    assert sum(sizes) == len(body)
    assert max(sizes) <= 2 << 20


@pytest.mark.parametrize("num_clients", [10])
def test_the_same_file_ten_times_at_once_under_one_key_is_one_job(
    server: Server, sqlite_context: ApiContext, num_clients
):
    answers: list[httpx.Response] = []

    def send() -> None:
        answers.append(
            httpx.post(
                f"{server.url}/v1/jobs",
                files={"file": ("a.wav", SPEECH.read_bytes())},
                headers=server.headers | {"Idempotency-Key": "k1"},
                timeout=120,
            )
        )

    threads = [threading.Thread(target=send) for _ in range(num_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(list(sqlite_context.storage.list("media/"))) == 1
