"""Health, metrics, the page, access without keys, and transcripts and media as files."""

import json
import socket
from uuid import UUID

import httpx
import pytest
from fastapi.testclient import TestClient

from api.context import ApiContext
from core.transcript import Segment
from tests.integration.api.conftest import SPEECH, client_of, make_context, make_key
from tests.integration.api.fakes import finish_now
from tests.integration.api.servers import Server
from tests.integration.api.test_jobs import post


def test_ready_means_everything_answers(client: TestClient):
    response = client.get("/health/ready")
    assert response.status_code == 200, response.text
    assert response.json()["status"] == "ok"
    assert set(response.json()["checks"]) == {"database", "redis", "storage"}


def test_not_ready_says_what_is_down(sqlite_sessions, settings, queue):
    context = make_context(sqlite_sessions, settings(redis_url="redis://127.0.0.1:1"), queue)
    response = client_of(context, None).get("/health/ready")
    assert response.status_code == 503
    checks = response.json()["checks"]
    assert [name for name, check in checks.items() if not check["ok"]] == ["redis"]


def test_live_asks_nobody(sqlite_sessions, settings, queue):
    context = make_context(sqlite_sessions, settings(redis_url="redis://127.0.0.1:1"), queue)
    assert client_of(context, None).get("/health/live").json() == {"status": "ok"}


def test_a_job_is_accepted_while_redis_is_away(sqlite_sessions, settings, queue):
    context = make_context(sqlite_sessions, settings(redis_url="redis://127.0.0.1:1"), queue)
    assert post(client_of(context, make_key(context))).status_code == 202


def test_metrics_count_requests_and_depths(client: TestClient, context: ApiContext):
    first = post(client).json()["id"]
    post(client)
    finish_now(context, UUID(first))
    client.get("/v1/jobs/nonsense")
    text = client.get("/metrics").text
    assert 'scriptorium_jobs{status="queued"} 1.0' in text
    assert 'scriptorium_jobs{status="completed"} 1.0' in text
    assert (
        'scriptorium_http_requests_total{method="POST",route="/v1/jobs",status="202"} 2.0' in text
    )
    assert 'route="/v1/jobs/{job_id}",status="404"' in text
    assert "nonsense" not in text
    hours = next(line for line in text.splitlines() if line.startswith("scriptorium_transcribed"))
    assert float(hours.split()[1]) == pytest.approx(2.5 / 3600)


@pytest.mark.parametrize(
    ("format_name", "content_type", "start"),
    [
        ("json", "application/json", '{"text": "Hello there. How are you?"'),
        ("verbose_json", "application/json", '{"task": "transcribe"'),
        ("text", "text/plain; charset=utf-8", "Hello there. How are you?\n"),
        ("srt", "application/x-subrip; charset=utf-8", "1\n00:00:00,000 --> "),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT\n\n00:00:00.000 --> "),
        ("tsv", "text/tab-separated-values; charset=utf-8", "start\tend\ttext\n0\t1000\tHello"),
    ],
)
def test_transcripts_come_in_every_format(
    sqlite_client: TestClient, sqlite_context: ApiContext, format_name, content_type, start
):
    job_id = post(sqlite_client, "会議.1.wav").json()["id"]
    url = f"/v1/jobs/{job_id}/transcript"
    early = sqlite_client.get(url, params={"format": format_name})
    assert (early.status_code, early.json()["code"]) == (409, "transcript_not_ready")
    finish_now(sqlite_context, UUID(job_id))
    response = sqlite_client.get(url, params={"format": format_name, "download": "true"})
    assert response.status_code == 200
    assert response.headers["Content-Type"] == content_type
    assert response.text.startswith(start)
    disposition = response.headers["Content-Disposition"]
    assert "filename*=UTF-8''%E4%BC%9A%E8%AD%B0.1." in disposition
    assert "Content-Disposition" not in sqlite_client.get(url).headers


def test_subtitles_follow_the_limits_asked_for(
    sqlite_client: TestClient, sqlite_context: ApiContext
):
    job_id = post(sqlite_client).json()["id"]
    long = Segment(text="one two three four five six seven eight", start_ms=0, end_ms=6000)
    finish_now(sqlite_context, UUID(job_id), (long,))
    url = f"/v1/jobs/{job_id}/transcript"
    params = {"format": "srt", "max_line_chars": 12, "max_lines": 1}
    lines = sqlite_client.get(url, params=params).text.splitlines()
    texts = [line for line in lines if line and not line.isdecimal() and "-->" not in line]
    assert max(map(len, texts)) <= 12
    assert " ".join(texts) == long.text
    assert sqlite_client.get(url, params={"format": "docx"}).json()["param"] == "format"
    assert sqlite_client.get(url, params={"max_lines": 0}).status_code == 422


@pytest.mark.parametrize(
    ("wanted", "status", "expected"),
    [
        ("bytes=0-3", 206, slice(0, 4)),
        ("bytes=10-", 206, slice(10, None)),
        ("bytes=-5", 206, slice(-5, None)),
        ("bytes=0-99999999", 206, slice(0, None)),
        ("bytes=5-2", 200, slice(0, None)),
        ("lines=1-2", 200, slice(0, None)),
        ("bytes=0-1,4-5", 200, slice(0, None)),
        ("bytes=99999999-", 416, slice(0, 0)),
        ("bytes=-0", 416, slice(0, 0)),
    ],
)
def test_media_is_given_in_ranges(
    sqlite_client: TestClient, sqlite_context: ApiContext, wanted, status, expected
):
    job_id = post(sqlite_client).json()["id"]
    response = sqlite_client.get(f"/v1/jobs/{job_id}/media", headers={"Range": wanted})
    assert response.status_code == status
    assert response.content == SPEECH.read_bytes()[expected]
    if status == 206:
        assert response.headers["Content-Range"].endswith(f"/{SPEECH.stat().st_size}")


def test_media_that_went_is_not_found(sqlite_client: TestClient, sqlite_context: ApiContext):
    job_id = post(sqlite_client).json()["id"]
    [info] = sqlite_context.storage.list("media/")
    sqlite_context.storage.delete(info.key)
    response = sqlite_client.get(f"/v1/jobs/{job_id}/media")
    assert (response.status_code, response.json()["code"]) == (404, "media_not_found")


def test_without_keys_only_this_machine_and_this_page_may_ask(
    sqlite_sessions, settings, queue, redis_url
):
    context = make_context(sqlite_sessions, settings(redis_url=redis_url, auth=False), queue)
    client = client_of(context, None)

    def ask(host: str, **headers: str) -> int:
        return client.get("/v1/jobs", headers={"Host": host, **headers}).status_code

    assert ask("127.0.0.1:8000") == 200
    assert ask("localhost:8000", Origin="http://localhost:8000") == 200
    assert ask("[::1]:8000") == 200
    assert ask("rebound.example:8000") == 403
    assert ask("localhost:8000", Origin="https://evil.example") == 403
    assert ask("localhost:8000", Origin="null") == 403


def test_the_page_asks_nothing_of_the_world(sqlite_client: TestClient):
    page = sqlite_client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    for part in ("/", "/web/page.js", "/web/page.css"):
        text = sqlite_client.get(part).text
        assert "http://" not in text
        assert "https://" not in text
    assert "/web/page.js" in page.text


def test_docs_and_openapi_are_served(sqlite_client: TestClient):
    assert sqlite_client.get("/docs").status_code == 200
    document = sqlite_client.get("/openapi.json").json()
    assert {"multipart/form-data", "application/json"} == set(
        document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]
    )


def send_raw(server: Server, request: bytes) -> tuple[bytes, bytes]:
    """Return head and body of the answer, which ends the connection."""
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port), timeout=10) as away:
        away.sendall(request)
        head, _, body = b"".join(iter(lambda: away.recv(4096), b"")).partition(b"\r\n\r\n")
    return head, body


def test_what_the_server_itself_refuses_is_a_problem_too(server: Server):
    too_long = b"?status=" + b"x" * (1 << 16) + b" HTTP/1.1\r\nHost: here\r\n\r\n"
    head, body = send_raw(server, b"GET /v1/jobs" + too_long)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] == "invalid_http"
    _, body = send_raw(server, b"GET /v1/models" + too_long)
    assert json.loads(body)["error"]["code"] == "invalid_http"
    head, body = send_raw(server, b"EHLO\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["status"] == 400
