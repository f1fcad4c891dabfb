"""Jobs over HTTP: what is accepted, what is refused, and what is left behind."""

from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from api.context import ApiContext
from core.db import read_session
from models import Job, Media
from tests.integration.api.conftest import MEDIA, SPEECH, client_of, make_key
from tests.integration.api.fakes import RecordingQueue, fail, finish_now, start


def post(client: TestClient, name: str = "speech.wav", path=SPEECH, **fields: str):
    return client.post("/v1/jobs", data=fields, files={"file": (name, path.read_bytes())})


def leftovers(context: ApiContext) -> tuple[int, int, list[str]]:
    with read_session(context.sessions) as session:
        jobs = session.scalar(select(func.count()).select_from(Job))
        media = session.scalar(select(func.count()).select_from(Media))
    return jobs, media, [info.key for info in context.storage.list("")]


def test_an_upload_becomes_a_queued_job(
    client: TestClient, context: ApiContext, queue: RecordingQueue
):
    response = post(
        client,
        language="English",
        priority="bulk",
        reference="r-1",
        metadata='{"case": 7}',
        timestamps="word",
        delete_after_s="3600",
        webhook_url="https://example.com/hook",
    )
    assert response.status_code == 202, response.text
    view = response.json()
    assert response.headers["Location"] == f"/v1/jobs/{view['id']}"
    assert response.headers["X-Request-ID"]
    assert view["status"] == "queued"
    assert view["options"]["language"] == "en"
    assert view["options"]["timestamps"] == "word"
    assert (view["priority"], view["reference"]) == ("bulk", "r-1")
    assert view["metadata"] == {"case": 7}
    assert view["filename"] == "speech.wav"
    assert view["delete_at"] is not None
    assert set(view["progress"]) == {
        "windows_done", "windows_total", "audio_s_done", "audio_s_total", "percent",
    }  # fmt: skip
    assert queue.prepared.get_nowait() == UUID(view["id"])
    with read_session(context.sessions) as session:
        media = session.scalars(select(Media)).one()
        assert context.storage.read(media.storage_key) == SPEECH.read_bytes()
        assert len(media.sha256) == 64
        assert session.scalars(select(Job.webhook_url)).one() == "https://example.com/hook"
    assert client.get(f"/v1/jobs/{view['id']}").json() == view


def test_fields_may_follow_the_file(client: TestClient):
    boundary = "b0undary"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    ).encode()
    body += SPEECH.read_bytes()
    body += (
        f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="language"\r\n\r\nfr\r\n'
        f"--{boundary}--\r\n"
    ).encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    response = client.post("/v1/jobs", content=body, headers=headers)
    assert response.status_code == 202, response.text
    assert response.json()["options"]["language"] == "fr"


BAD_OPTIONS = [
    ({"language": "xx"}, "unknown_language", "language"),
    ({"temperature": "nan"}, "invalid_option", "temperature"),
    ({"temperature": "5"}, "invalid_option", "temperature"),
    ({"temperature": "-1"}, "invalid_option", "temperature"),
    ({"task": "summarise"}, "invalid_option", "task"),
    ({"channels": "both"}, "invalid_option", "channels"),
    ({"timestamps": "words"}, "invalid_option", "timestamps"),
    ({"vad": "perhaps"}, "invalid_option", "vad"),
    ({"priority": "urgent"}, "invalid_option", "priority"),
    ({"model": "whisper-99"}, "model_not_found", "model"),
    ({"metadata": "[1]"}, "invalid_option", "metadata"),
    ({"metadata": "{"}, "invalid_option", "metadata"),
    ({"metadata": '{"a": NaN}'}, "invalid_option", "metadata"),
    ({"metadata": '{"a": 1e999}'}, "invalid_option", "metadata"),
    ({"metadata": '{"a": "\\u0000"}'}, "invalid_option", "metadata"),
    ({"metadata": '{"\\ud800": 1}'}, "invalid_option", "metadata"),
    ({"metadata": "[" * 100_000}, "invalid_option", "metadata"),
    ({"delete_after_s": "0"}, "invalid_option", "delete_after_s"),
    ({"delete_after_s": "9" * 5000}, "invalid_option", "delete_after_s"),
    ({"delete_after_s": "1.5"}, "invalid_option", "delete_after_s"),
    ({"reference": "x" * 501}, "invalid_option", "reference"),
    ({"reference": "a\0b"}, "invalid_option", "reference"),
    ({"webhook_url": "ftp://example.com"}, "invalid_option", "webhook_url"),
    ({"webhook_url": "http://127.0.0.1/"}, "invalid_option", "webhook_url"),
    ({"webhook_secret": "guess"}, "invalid_option", "webhook_secret"),
    ({"langauge": "en"}, "invalid_option", "langauge"),
    ({"prompt": "x" * 70_000}, "invalid_option", "prompt"),
]


@pytest.mark.parametrize(("fields", "code", "param"), BAD_OPTIONS)
def test_a_bad_option_is_refused_by_name_and_leaves_nothing(
    sqlite_client: TestClient, sqlite_context: ApiContext, fields, code, param
):
    response = post(sqlite_client, **fields)
    assert response.status_code == 400, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert (problem["code"], problem["param"]) == (code, param)
    assert problem["type"] == f"urn:scriptorium:problem:{code}"
    assert problem["request_id"] == response.headers["X-Request-ID"]
    assert leftovers(sqlite_context) == (0, 0, [])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("text_renamed.mp3", "media_undecodable"),
        ("html_error_page.mp3", "media_undecodable"),
        ("webm_header_only.webm", "media_empty"),
        ("webm_headerless_chunk.webm", "media_undecodable"),
        ("mp4_video_no_audio.mp4", "media_has_no_audio"),
    ],
)
def test_what_is_no_audio_is_refused_at_the_door_and_leaves_nothing(
    sqlite_client: TestClient, sqlite_context: ApiContext, name, code
):
    response = post(sqlite_client, name, MEDIA / name)
    assert response.status_code == 400, response.text
    assert response.json()["code"] == code
    assert leftovers(sqlite_context) == (0, 0, [])


def test_an_empty_file_is_refused(sqlite_client: TestClient, sqlite_context: ApiContext):
    response = sqlite_client.post("/v1/jobs", files={"file": ("a.wav", b"")})
    assert (response.status_code, response.json()["code"]) == (400, "media_empty")
    assert leftovers(sqlite_context) == (0, 0, [])


def test_a_form_without_a_file_names_the_file(sqlite_client: TestClient):
    response = sqlite_client.post("/v1/jobs", files={"language": (None, "en")})
    assert response.status_code == 400
    assert response.json()["param"] == "file"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "multipart/form-data"}, b"x"),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"garbage"),
        (
            {"Content-Type": "multipart/form-data; boundary=b"},
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhalf',
        ),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b\r\nX: y\r\n\r\nz\r\n--b--"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"language=en"),
        ({"Content-Type": "text/plain"}, b"hello"),
        ({}, b""),
        ({"Content-Type": "application/json"}, b"{"),
        ({"Content-Type": "application/json"}, b"[]"),
        ({"Content-Type": "application/json"}, b"\xff"),
        ({"Content-Type": "application/json"}, b"[" * 50_000),
        ({"Content-Type": "application/json"}, b"{}"),
        ({"Content-Type": "application/json"}, b'{"media_key": 7}'),
        ({"Content-Type": "application/json"}, b"x" * 2_000_000),
    ],
)
def test_a_malformed_body_is_refused_and_leaves_nothing(
    sqlite_client: TestClient, sqlite_context: ApiContext, headers, body
):
    response = sqlite_client.post("/v1/jobs", content=body, headers=headers)
    assert response.status_code == 400, response.text
    assert leftovers(sqlite_context) == (0, 0, [])


def test_a_file_larger_than_allowed_is_cut_off_while_it_streams(
    sqlite_sessions, settings, queue, redis_url
):
    from tests.integration.api.conftest import make_context

    small = settings(redis_url=redis_url, max_upload_bytes=10_000)
    context = make_context(sqlite_sessions, small, queue)
    with client_of(context, make_key(context)) as client:
        for size in (10_001, 5_000_000):
            response = client.post("/v1/jobs", files={"file": ("a.wav", b"x" * size)})
            assert response.status_code == 413
            assert response.json()["code"] == "media_too_large"
    assert leftovers(context) == (0, 0, [])


def test_a_nearly_full_disk_refuses_uploads_for_now(sqlite_sessions, settings, queue, redis_url):
    from tests.integration.api.conftest import make_context

    full = settings(redis_url=redis_url, min_free_bytes=2**62)
    context = make_context(sqlite_sessions, full, queue)
    with client_of(context, make_key(context)) as client:
        response = post(client)
    assert response.status_code == 503
    assert response.headers["Retry-After"]
    assert leftovers(context) == (0, 0, [])


NAMES = [
    "会議 録音.wav",
    'o\'brien "quoted"; $(touch x).wav',
    "noextension",
    "%d_100%.wav",
    "two.dots.mp3.wav",
    "../../../../tmp/pwned.wav",
    "a/b/c.wav",
    "back\\slash.wav",
    "-rf.wav",
    "naïve café.wav",
    "🎙️.wav",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_comes_back_unchanged_and_is_never_a_path(
    sqlite_client: TestClient, sqlite_context: ApiContext, name
):
    response = post(sqlite_client, name)
    assert response.status_code == 202, response.text
    view = response.json()
    assert view["filename"] == name
    media = sqlite_client.get(f"/v1/jobs/{view['id']}/media")
    assert media.content == SPEECH.read_bytes()
    assert media.headers["Content-Disposition"].isascii()
    _jobs, _media, keys = leftovers(sqlite_context)
    assert [key.split("/")[0] for key in keys] == ["media"]


def test_a_refused_commit_is_not_answered_with_202(
    client: TestClient, context: ApiContext, monkeypatch
):
    """A commit that fails after the use case must reach the caller (FastAPI's default hides it)."""
    from sqlalchemy import event
    from sqlalchemy.exc import OperationalError

    def refuse(_session: object) -> None:
        raise OperationalError("COMMIT", None, Exception("disk on fire"))

    job = post(client).json()
    event.listen(context.sessions.class_, "before_commit", refuse)
    try:
        created = post(client)
        cancelled = client.post(f"/v1/jobs/{job['id']}/cancel")
    finally:
        event.remove(context.sessions.class_, "before_commit", refuse)
    assert (created.status_code, cancelled.status_code) == (503, 503)
    assert client.get(f"/v1/jobs/{job['id']}").json()["status"] == "queued"


def test_what_is_no_id_names_no_job(sqlite_client: TestClient):
    for name in ("nonsense", "00000000-0000-0000-0000-000000000000", "%00", "a" * 300):
        assert sqlite_client.get(f"/v1/jobs/{name}").status_code == 404


def test_cancel_and_retry_follow_the_table_of_transitions(
    client: TestClient, context: ApiContext, queue: RecordingQueue
):
    job = post(client).json()
    url = f"/v1/jobs/{job['id']}"
    assert client.post(f"{url}/retry").json()["code"] == "invalid_transition"
    assert client.post(f"{url}/cancel").json()["status"] == "cancelled"
    assert client.post(f"{url}/cancel").status_code == 409
    assert client.post(f"{url}/retry").json()["status"] == "queued"
    assert queue.num_prepared == 2
    start(context, UUID(job["id"]))
    fail(context, UUID(job["id"]), "worker_lost", "Lost again and again.")
    view = client.get(url).json()
    assert view["error"] == {"code": "worker_lost", "message": "Lost again and again."}


def test_delete_leaves_no_row_and_no_object(client: TestClient, context: ApiContext):
    job = post(client).json()
    finish_now(context, UUID(job["id"]))
    context.storage.put(f"transcripts/{job['id']}.json", b"{}")
    context.storage.put(f"windows/{job['id']}/0.flac", b"x")
    assert client.delete(f"/v1/jobs/{job['id']}").status_code == 204
    assert client.get(f"/v1/jobs/{job['id']}").status_code == 404
    assert leftovers(context) == (0, 0, [])


def test_a_media_key_is_taken_from_the_shared_folder_only(
    sqlite_client: TestClient, sqlite_context: ApiContext
):
    sqlite_context.storage.put("inbox/call 1.wav", SPEECH.read_bytes())
    other = post(sqlite_client).json()["id"]
    response = sqlite_client.post(
        "/v1/jobs", json={"media_key": "inbox/call 1.wav", "vad": False, "temperature": 0.2}
    )
    assert response.status_code == 202, response.text
    assert response.json()["filename"] == "call 1.wav"
    with read_session(sqlite_context.sessions) as session:
        media = session.scalars(select(Media.storage_key).where(Media.is_ours)).one()
    for key in (media, "inbox/../" + media, "windows/x", "inbox/", "inbox/a\\b", "/etc/passwd"):
        refused = sqlite_client.post("/v1/jobs", json={"media_key": key})
        assert (refused.status_code, refused.json()["param"]) == (400, "media_key"), key
    missing = sqlite_client.post("/v1/jobs", json={"media_key": "inbox/none.wav"})
    assert (missing.status_code, missing.json()["code"]) == (404, "media_not_found")
    sqlite_client.delete(f"/v1/jobs/{response.json()['id']}")
    sqlite_client.delete(f"/v1/jobs/{other}")
    assert leftovers(sqlite_context) == (0, 0, ["inbox/call 1.wav"])


def test_one_idempotency_key_makes_one_job(client: TestClient, context: ApiContext):
    def send(**fields: str):
        return client.post(
            "/v1/jobs",
            data=fields,
            files={"file": ("a.wav", SPEECH.read_bytes())},
            headers={"Idempotency-Key": "k1"},
        )

    first, again = send(), send()
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Location"] == first.headers["Location"]
    assert send(language="fr").status_code == 409
    jobs, media, keys = leftovers(context)
    assert (jobs, media, len(keys)) == (1, 1, 1)


def test_the_router_too_answers_with_problems(sqlite_client: TestClient):
    missing = sqlite_client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    wrong = sqlite_client.put("/v1/jobs")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "GET, POST"
    one = sqlite_client.put("/v1/jobs/01980f5e-5b1c-7cc3-b0c4-5a3f0d6f2b11")
    assert one.headers["Allow"] == "GET, DELETE"
    openai = sqlite_client.put("/v1/audio/transcriptions")
    assert openai.json()["error"]["type"] == "invalid_request_error"


def test_an_unexpected_error_is_a_problem_without_details(sqlite_client: TestClient, monkeypatch):
    import api.routes.jobs

    def crash(*_args: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(api.routes.jobs, "get_job", crash)
    response = sqlite_client.get("/v1/jobs/00000000-0000-0000-0000-000000000000")
    assert response.status_code == 500
    assert response.json()["code"] == "internal_error"
    assert "secret detail" not in response.text
    assert response.headers["X-Request-ID"] == response.json()["request_id"]
