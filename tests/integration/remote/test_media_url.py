"""Jobs whose media is fetched by the worker, through the real stages on both databases."""

import gzip
import hashlib
import json
import socket
from datetime import timedelta

import pytest
import structlog

from core.db import read_session, unit_of_work
from core.options import Priority, TranscribeOptions
from lifecycle.intake import Intake, find_media, take_in
from lifecycle.jobs import get_job, lock_owned_job, purge_job
from lifecycle.submissions import Source as MediaSource
from lifecycle.submissions import SourceKind, Submission
from models import LOCAL_KEY_ID, ApiKey, Job, JobStatus, Media
from tests.integration.remote.source import serving
from tests.integration.workers.conftest import make_pipeline
from tests.support.pipeline import MODEL, noise, wav
from workers import fetch

BODY = wav(noise(4.0))


@pytest.fixture
def pipeline(sessions, tmp_path):
    return make_pipeline(sessions, tmp_path, webhook_allow_private=True)


@pytest.fixture
def submit(pipeline):
    def make(url, *, headers=None, **limits):
        context = pipeline.context
        intake = Intake(
            settings=context.settings, sessions=context.sessions, storage=context.storage,
            queue=context.queue, publisher=context.publisher,
        )  # fmt: skip
        with unit_of_work(context.sessions) as uow:
            uow.session.get_one(ApiKey, LOCAL_KEY_ID).limits = limits
        media_source = MediaSource(kind=SourceKind.MEDIA_URL, value=url, headers=headers or {})
        make_media = find_media(intake, LOCAL_KEY_ID, media_source, now=context.now())
        options = TranscribeOptions(language="en", vad=False)
        submission = Submission(model=MODEL, options=options, priority=Priority.STANDARD)
        with unit_of_work(context.sessions) as uow:
            job = take_in(uow, intake, LOCAL_KEY_ID, make_media, submission, now=context.now())
        return job.id

    return make


def job_of(pipeline, job_id):
    with read_session(pipeline.context.sessions) as session:
        return session.get_one(Job, job_id)


def media_of(pipeline, job_id):
    with read_session(pipeline.context.sessions) as session:
        return session.get_one(Media, session.get_one(Job, job_id).media_id)


def objects(pipeline):
    return list(pipeline.context.storage.list("media/"))


def test_the_media_is_fetched_hashed_and_transcribed(pipeline, submit, source):
    source.body = BODY
    job_id = submit(source.url, headers={"X-Token": "geheim"})
    pipeline.run()
    assert job_of(pipeline, job_id).status == JobStatus.COMPLETED
    media = media_of(pipeline, job_id)
    assert media.sha256 == hashlib.sha256(BODY).hexdigest()
    assert media.size_bytes == len(BODY)
    assert media.filename == "Aufnahme ä.wav"
    assert pipeline.context.storage.read(media.storage_key) == BODY
    ((_path, headers),) = source.requests
    assert headers["x-token"] == "geheim"


def test_secrets_of_the_source_are_gone_once_it_is_fetched_and_never_logged(
    pipeline, submit, source
):
    source.body = BODY
    with structlog.testing.capture_logs() as logs:
        job_id = submit(source.url, headers={"Authorization": "Bearer geheim"})
        pipeline.run()
    media = media_of(pipeline, job_id)
    assert (media.source_url, media.source_headers) == (None, None)
    text = json.dumps(logs, default=str)
    assert "media.fetched" in text
    assert "geheim" not in text
    assert "signature" not in text


def test_a_fetch_that_breaks_off_goes_on_where_it_stopped(pipeline, submit, source):
    source.body, source.break_after, source.breaks = BODY, 20_000, 2
    job_id = submit(source.url)
    pipeline.run()
    assert job_of(pipeline, job_id).status == JobStatus.COMPLETED
    assert media_of(pipeline, job_id).sha256 == hashlib.sha256(BODY).hexdigest()
    ranges = [headers.get("range") for _path, headers in source.requests]
    assert ranges == [None, "bytes=20000-", "bytes=40000-"]
    assert source.requests[1][1]["if-range"] == '"one"'


def test_a_source_without_ranges_is_fetched_again_from_the_start(pipeline, submit, source):
    source.body, source.break_after, source.breaks, source.ranges = BODY, 20_000, 1, False
    job_id = submit(source.url)
    pipeline.run()
    assert media_of(pipeline, job_id).sha256 == hashlib.sha256(BODY).hexdigest()
    assert len(objects(pipeline)) == 1


def test_a_source_that_changes_meanwhile_is_never_mixed(pipeline, submit, source):
    source.body, source.break_after, source.breaks = b"x" * len(BODY), 20_000, 1
    job_id = submit(source.url)
    original = fetch.log.info

    def change(event, **fields):
        if event == "fetch.broken":
            source.body, source.etag = BODY, '"two"'
        original(event, **fields)

    fetch.log.info = change
    try:
        pipeline.run()
    finally:
        fetch.log.info = original
    assert media_of(pipeline, job_id).sha256 == hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize("content_type", ["text/vnd.trolltech.linguist", "text/plain", ""])
def test_media_that_its_server_calls_something_else_is_taken(
    pipeline, submit, source, content_type
):
    source.body, source.content_type = BODY, content_type
    job_id = submit(source.url)
    pipeline.run()
    assert job_of(pipeline, job_id).status == JobStatus.COMPLETED


def test_what_is_packed_is_unpacked_and_asked_for_again_when_it_breaks_off(
    pipeline, submit, source
):
    half = len(BODY) // 2
    source.body = gzip.compress(BODY[:half]) + gzip.compress(BODY[half:])
    source.encoding, source.break_after, source.breaks = "gzip", 20_000, 1
    job_id = submit(source.url)
    pipeline.run()
    media = media_of(pipeline, job_id)
    assert (media.sha256, media.size_bytes) == (hashlib.sha256(BODY).hexdigest(), len(BODY))
    assert [headers.get("range") for _path, headers in source.requests] == [None, None]


def test_what_unpacks_to_more_than_allowed_is_not_unpacked(pipeline, submit, source):
    source.body, source.encoding = gzip.compress(bytes(50_000_000)), "gzip"
    job_id = submit(source.url, upload_bytes=1_000_000)
    pipeline.run()
    assert job_of(pipeline, job_id).error_code == "media_too_large"
    assert objects(pipeline) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"status": 404}, "media_unreachable"),
        ({"encoding": "br"}, "media_unreachable"),
        ({"encoding": "gzip"}, "media_unreachable"),
        ({"encoding": "gzip", "body": gzip.compress(BODY)[:-9]}, "media_unreachable"),
        ({"status": 403}, "media_unreachable"),
        ({"content_type": "text/html; charset=utf-8"}, "media_unreachable"),
        ({"content_type": "Application/JSON"}, "media_unreachable"),
        ({"body": b""}, "media_empty"),
        ({"body": b"<html>nothing here</html>"}, "media_undecodable"),
    ],
)
def test_what_cannot_pass_by_trying_again_fails_the_job_at_once(
    pipeline, submit, source, change, code
):
    source.body = BODY
    for name, value in change.items():
        setattr(source, name, value)
    job_id = submit(source.url)
    pipeline.run()
    job = job_of(pipeline, job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, code)
    assert "signature" not in (job.error_message or "")
    if code != "media_undecodable":
        assert objects(pipeline) == []


def test_a_source_in_trouble_is_tried_again_later(pipeline, submit, source):
    source.body, source.status = BODY, 503
    job_id = submit(source.url)
    pipeline.run()
    job = job_of(pipeline, job_id)
    assert (job.status, job.failures) == (JobStatus.RUNNING, 1)
    assert job.retry_at is not None

    source.status = 200
    pipeline.clock.advance(600)
    pipeline.messages.prepare(job_id, priority=0)
    pipeline.run()
    assert job_of(pipeline, job_id).status == JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("retry_after", "wait_s"), [("90", 90), ("soon", 1), ("0", 1), ("999999", 3600)]
)
def test_a_source_says_when_it_wants_to_be_asked_again(
    pipeline, submit, source, retry_after, wait_s
):
    source.body, source.status = BODY, 429
    source.refusal_headers["retry-after"] = retry_after
    job_id = submit(source.url)
    pipeline.run()
    assert job_of(pipeline, job_id).retry_at == pipeline.clock.at + timedelta(seconds=wait_s)


@pytest.mark.parametrize("declared", [True, False])
def test_more_than_the_key_may_send_is_refused_and_leaves_nothing(
    pipeline, submit, source, declared
):
    source.body, source.declared = BODY, declared
    job_id = submit(source.url, upload_bytes=50_000)
    pipeline.run()
    assert job_of(pipeline, job_id).error_code == "media_too_large"
    assert objects(pipeline) == []


def test_a_job_deleted_while_its_media_comes_leaves_none(pipeline, submit, source, monkeypatch):
    def delete_first(session, job_id, **where):
        session.rollback()
        with unit_of_work(pipeline.context.sessions) as uow:
            purge_job(uow, pipeline.context.storage, get_job(uow.session, None, job_id))
        assert len(objects(pipeline)) == 0
        pipeline.context.storage.put(key, BODY)  # the fetch was faster than the deletion
        return lock_owned_job(session, job_id, **where)

    source.body = BODY
    job_id = submit(source.url)
    key = media_of(pipeline, job_id).storage_key
    monkeypatch.setattr(fetch, "lock_owned_job", delete_first)
    pipeline.run()
    assert objects(pipeline) == []


def test_a_redirect_is_followed_without_the_secrets_of_the_first_place(pipeline, submit, source):
    with serving() as other:
        other.body = BODY
        source.location = f"http://127.0.0.1:{other.port}/target.wav"
        job_id = submit(source.url, headers={"X-Token": "geheim", "Authorization": "Bearer g"})
        pipeline.run()
        ((_path, headers),) = other.requests
    assert job_of(pipeline, job_id).status == JobStatus.COMPLETED
    assert "x-token" not in headers
    assert "authorization" not in headers


def test_redirects_have_an_end(pipeline, submit, source):
    source.location = source.url
    job_id = submit(source.url)
    pipeline.run()
    job = job_of(pipeline, job_id)
    assert job.error_code == "media_unreachable"
    assert "without an end" in job.error_message
    assert len(source.requests) <= 8


def resolving_to(address):
    def resolve(_host, port, *_args, **_kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return resolve


def test_a_name_that_points_inside_is_not_contacted(sessions, tmp_path, source, monkeypatch):
    from core import outbound

    monkeypatch.setattr(
        fetch, "open_client",
        lambda **options: outbound.open_client(
            **options | {"resolver": resolving_to("127.0.0.1")}
        ),
    )  # fmt: skip
    pipeline = make_pipeline(sessions, tmp_path, webhook_allow_private=False)
    source.body = BODY
    context = pipeline.context
    with unit_of_work(context.sessions) as uow:
        media = Media(
            key_id=LOCAL_KEY_ID, storage_key="media/x", created_at=context.now(),
            source_url=f"http://inner.example:{source.port}/a.wav",
        )  # fmt: skip
        job = Job(
            key_id=LOCAL_KEY_ID, media=media, model=MODEL, options={}, priority=10,
            created_at=context.now(),
        )  # fmt: skip
        uow.session.add(job)
    context.queue.prepare(job.id, priority=0)
    pipeline.run()
    assert job_of(pipeline, job.id).error_code == "media_unreachable"
    assert source.requests == []
