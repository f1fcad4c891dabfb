"""`/v1/uploads` over files and over S3, and the media that become of them."""

import hashlib
import os
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest

from api.context import ApiContext
from core.db import unit_of_work
from core.storage import open_storage
from lifecycle import uploads
from models import Job, Media, Upload
from tests.integration.api.conftest import (
    SPEECH,
    client_of,
    make_context,
    make_key,
)

AUDIO = SPEECH.read_bytes()


@pytest.fixture(params=["local", "s3"])
def any_context(request, sqlite_context, sqlite_sessions, queue, redis_url):
    """SQLite over files, and over S3."""
    if request.param == "local":
        return sqlite_context
    make_settings = request.getfixturevalue("s3_settings")
    chosen = make_settings(redis_url=redis_url)
    context = make_context(sqlite_sessions, chosen, queue)
    storage = open_storage(chosen.storage, s3_endpoint_url=chosen.s3_endpoint_url)
    fields = {name: getattr(context, name) for name in ApiContext.__dataclass_fields__}
    return ApiContext(**fields | {"storage": storage})


@pytest.fixture
def any_client(any_context):
    with client_of(any_context, make_key(any_context)) as client:
        yield client


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of 5 MiB, the least that S3 takes, above 6 MB."""
    monkeypatch.setattr(uploads, "ONE_PUT_BYTES", 6_000_000)
    monkeypatch.setattr(uploads, "PART_BYTES", 5 << 20)


def put(client, url, data, headers):
    """PUT to S3 over the network, to the API through its client, with no key either way."""
    if urlsplit(url).hostname == "testserver":
        return client.put(url, content=data, headers=headers | {"Authorization": ""})
    return httpx.put(url, content=data, headers=headers, trust_env=False, timeout=60)


def announce(client, size, **body):
    answer = client.post("/v1/uploads", json={"filename": "会議.wav", "size_bytes": size} | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def send_parts(client, upload, data, *, only=None):
    start = 0
    for part in upload["parts"]:
        piece = data[start : start + part["size_bytes"]]
        start += part["size_bytes"]
        if only is None or part["number"] in only:
            answer = put(client, part["url"], piece, upload["headers"])
            assert answer.status_code in {200, 204}, answer.text


def media_bytes(context, job):
    with context.sessions() as session:
        media = session.get(Media, session.get(Job, UUID(job["id"])).media_id)
        return context.storage.read(media.storage_key), media


def test_a_small_file_goes_up_in_one_put_and_becomes_a_job(any_client, any_context):
    upload = announce(any_client, len(AUDIO), content_type="audio/wav")
    assert upload["method"] == "PUT"
    assert upload["parts"] is None
    assert put(any_client, upload["url"], AUDIO, upload["headers"]).status_code in {200, 204}

    job = any_client.post("/v1/jobs", json={"upload_id": upload["id"]})

    assert job.status_code == 202, job.text
    assert job.json()["filename"] == "会議.wav"
    stored, media = media_bytes(any_context, job.json())
    assert stored == AUDIO
    assert media.size_bytes == len(AUDIO)


def test_a_large_file_goes_up_in_parts_in_any_order_and_twice(any_client, any_context, small_parts):
    data = os.urandom(12_000_000)
    upload = announce(any_client, len(data))
    sizes = [part["size_bytes"] for part in upload["parts"]]
    assert sizes == [5 << 20, 5 << 20, len(data) - (10 << 20)]
    assert upload["url"] is None
    send_parts(any_client, upload, data, only={3, 1})

    early = any_client.post("/v1/jobs", json={"upload_id": upload["id"]})
    assert (early.status_code, early.json()["code"]) == (409, "upload_incomplete")
    shown = any_client.get(f"/v1/uploads/{upload['id']}").json()
    assert [p["received"] for p in shown["parts"]] == [True, False, True]
    assert shown["received_bytes"] == len(data) - (5 << 20)

    send_parts(any_client, shown, b"\0" * len(data), only={2})
    send_parts(any_client, shown, data, only={2})
    job = any_client.post("/v1/jobs", json={"upload_id": upload["id"]})
    assert job.status_code == 202, job.text
    stored, media = media_bytes(any_context, job.json())
    assert hashlib.sha256(stored).digest() == hashlib.sha256(data).digest()
    assert list(any_context.storage.list(f"uploads/{upload['id']}/parts/")) == []
    assert media.sha256 in {None, hashlib.sha256(data).hexdigest()}


def test_two_jobs_may_name_one_upload_and_share_its_media(any_client, any_context):
    upload = announce(any_client, len(AUDIO))
    put(any_client, upload["url"], AUDIO, upload["headers"])
    first, second = (
        any_client.post("/v1/jobs", json={"upload_id": upload["id"]}).json() for _ in range(2)
    )
    assert first["id"] != second["id"]
    any_client.delete(f"/v1/jobs/{first['id']}")
    assert media_bytes(any_context, second)[0] == AUDIO
    any_client.delete(f"/v1/jobs/{second['id']}")
    assert list(any_context.storage.list("uploads/")) == []
    gone = any_client.post("/v1/jobs", json={"upload_id": upload["id"]})
    assert gone.status_code in {404, 409}


def test_jobs_that_name_an_upload_at_once_all_get_its_media(sqlite_client, sqlite_context):
    upload = announce(sqlite_client, len(AUDIO))
    put(sqlite_client, upload["url"], AUDIO, upload["headers"])
    answers = []

    def submit():
        answers.append(sqlite_client.post("/v1/jobs", json={"upload_id": upload["id"]}))

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {a.status_code for a in answers} == {202}
    with sqlite_context.sessions() as session:
        assert session.query(Media).count() == 1


@pytest.mark.parametrize("body", [AUDIO[:-1], AUDIO + b"x", b""], ids=["short", "long", "empty"])
def test_a_body_of_another_length_leaves_nothing(sqlite_client, sqlite_context, body):
    upload = announce(sqlite_client, len(AUDIO))
    answer = put(sqlite_client, upload["url"], body, {})
    assert answer.status_code in {400, 413}
    assert list(sqlite_context.storage.list("uploads/")) == []


def test_more_bytes_than_announced_never_become_a_job(any_client):
    upload = announce(any_client, len(AUDIO) - 1)
    put(any_client, upload["url"], AUDIO, upload["headers"])
    assert any_client.post("/v1/jobs", json={"upload_id": upload["id"]}).status_code == 409


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"filename": "a.wav", "size_bytes": 0}, 400, "media_empty"),
        ({"filename": "a.wav", "size_bytes": 2**50}, 413, "media_too_large"),
        ({"filename": "a\nb.wav", "size_bytes": 5}, 400, "invalid_option"),
        ({"filename": "", "size_bytes": 5}, 422, "invalid_request"),
        ({"filename": "a.wav", "size_bytes": "5"}, 422, "invalid_request"),
        ({"filename": "a.wav", "size_bytes": 5, "content_type": "x\r\ny"}, 422, "invalid_request"),
    ],
)
def test_what_cannot_be_an_upload_is_refused(sqlite_client, body, status, code):
    answer = sqlite_client.post("/v1/uploads", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_the_urls_of_one_upload_open_no_other(sqlite_client):
    first, second = announce(sqlite_client, 5), announce(sqlite_client, 5)
    token = urlsplit(first["url"]).query
    url = second["url"].partition("?")[0] + "?" + token
    assert put(sqlite_client, url, b"12345", {}).status_code == 404
    assert put(sqlite_client, first["url"].partition("?")[0], b"12345", {}).status_code == 422


def test_another_key_can_neither_see_nor_use_nor_delete_it(any_client, any_context):
    upload = announce(any_client, len(AUDIO))
    put(any_client, upload["url"], AUDIO, upload["headers"])
    with client_of(any_context, make_key(any_context, name="other")) as other:
        assert other.get(f"/v1/uploads/{upload['id']}").status_code == 404
        assert other.delete(f"/v1/uploads/{upload['id']}").status_code == 404
        assert other.post("/v1/jobs", json={"upload_id": upload["id"]}).status_code == 404


def test_an_unused_upload_expires_with_all_that_arrived(any_client, any_context, small_parts):
    data = os.urandom(7_000_000)
    upload = announce(any_client, len(data))
    send_parts(any_client, upload, data, only={1})
    single = announce(any_client, len(AUDIO))
    put(any_client, single["url"], AUDIO, single["headers"])
    later = datetime.now(UTC) + uploads.LIFETIME + timedelta(minutes=1)
    with unit_of_work(any_context.sessions) as uow:
        assert uploads.expire_uploads(uow, any_context.storage, now=later) == 2
    assert list(any_context.storage.list("uploads/")) == []
    with any_context.sessions() as session:
        assert session.query(Upload).count() == 0
    assert any_client.get(f"/v1/uploads/{upload['id']}").status_code == 404


def test_the_media_of_a_job_outlives_its_upload(any_client, any_context):
    upload = announce(any_client, len(AUDIO))
    put(any_client, upload["url"], AUDIO, upload["headers"])
    job = any_client.post("/v1/jobs", json={"upload_id": upload["id"]}).json()
    later = datetime.now(UTC) + uploads.LIFETIME + timedelta(minutes=1)
    with unit_of_work(any_context.sessions) as uow:
        uploads.expire_uploads(uow, any_context.storage, now=later)
    assert media_bytes(any_context, job)[0] == AUDIO


def test_a_job_names_one_source_and_an_usable_one(sqlite_client):
    url = "https://example.com/a"
    for body, param in [
        ({}, "media_key"),
        ({"media_key": "inbox/a", "media_url": url}, "media_key"),
        ({"media_url": "http://127.0.0.1/a.wav"}, "media_url"),
        ({"media_url": "ftp://example.com/a.wav"}, "media_url"),
        ({"upload_id": "nonsense"}, "upload_id"),
        ({"media_key": "inbox/a", "media_headers": {"X-A": "b"}}, "media_headers"),
        ({"media_url": url, "media_headers": {"Host": "b"}}, "media_headers"),
        ({"media_url": url, "media_headers": {"X-A": "b\r\nC: d"}}, "media_headers"),
    ]:
        answer = sqlite_client.post("/v1/jobs", json=body)
        assert (answer.status_code, answer.json().get("param")) == (400, param), answer.text


def test_a_media_url_is_taken_and_its_secrets_are_not_shown(sqlite_client):
    body = {
        "media_url": "https://example.com/a/b.mp3?signature=geheim",
        "media_headers": {"Authorization": "Bearer geheim"},
    }
    answer = sqlite_client.post("/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.json()["filename"] == "b.mp3"
    shown = sqlite_client.get(f"/v1/jobs/{answer.json()['id']}")
    assert "geheim" not in answer.text + shown.text
