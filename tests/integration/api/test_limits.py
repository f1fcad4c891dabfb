from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from redis import Redis

from api.limits import RedisLimiter
from core.db import unit_of_work
from core.errors import InvalidOption
from lifecycle.limits import check_own_limits
from models import ApiKey, Job
from tests.integration.api.conftest import SPEECH, client_of, make_key
from tests.integration.api.fakes import finish_now

AUDIO = SPEECH.read_bytes()


def limit(context, **limits):
    with unit_of_work(context.sessions) as uow:
        for key in uow.session.query(ApiKey):
            key.limits = limits


def post(client, audio=AUDIO, **fields):
    return client.post("/v1/jobs", files={"file": ("a.wav", audio, "audio/wav")}, data=fields)


@pytest.fixture
def limited(context, redis_url):
    context = replace(context, limiter=RedisLimiter(Redis.from_url(redis_url)))
    with client_of(context, make_key(context)) as client:
        yield client


def test_requests_beyond_the_minutes_number_are_refused_with_the_numbers(limited, context):
    limit(context, requests_per_min=3)
    answers = [limited.get("/v1/jobs") for _ in range(7)]  # more than two minutes' worth
    assert [a.status_code for a in answers[:3]] == [200] * 3
    refused = next(a for a in answers if a.status_code == 429)
    assert refused.json()["code"] == "limit_exceeded"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["x-ratelimit-limit-requests"] == "3"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "2"
    assert int(answers[0].headers["x-ratelimit-reset-requests"]) <= 60


def test_the_next_minute_counts_anew_and_keys_count_apart(redis_url):
    limiter = RedisLimiter(Redis.from_url(redis_url))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    one, other = UUID(int=1), UUID(int=2)
    assert [limiter.count(one, now=now) for _ in range(3)] == [1, 2, 3]
    assert limiter.count(other, now=now) == 1
    assert limiter.count(one, now=now + timedelta(minutes=1)) == 1


def test_without_redis_nobody_is_refused(sqlite_context):
    dead = Redis.from_url("redis://127.0.0.1:1/0")
    context = replace(sqlite_context, limiter=RedisLimiter(dead))
    with client_of(context, make_key(context)) as client:
        limit(context, requests_per_min=1)
        assert [client.get("/v1/jobs").status_code for _ in range(3)] == [200] * 3


def test_a_key_without_a_limit_gets_no_numbers(limited):
    assert "x-ratelimit-limit-requests" not in limited.get("/v1/jobs").headers


def test_too_many_unfinished_jobs_are_refused_until_one_ends(client, context):
    limit(context, active_jobs=2)
    first, second, third = post(client), post(client), post(client)
    assert (first.status_code, second.status_code, third.status_code) == (202, 202, 429)
    assert third.headers["x-ratelimit-limit-jobs"] == "2"
    assert int(third.headers["retry-after"]) > 0
    assert len(list(context.storage.list("media/"))) == 2
    finish_now(context, UUID(first.json()["id"]))
    assert post(client).status_code == 202


def test_unfinished_audio_counts_by_what_the_header_claims(client, context):
    limit(context, queued_audio_s=10)
    answers = [post(client).status_code for _ in range(3)]
    assert answers == [202, 202, 429]
    with context.sessions() as session:
        assert {job.estimated_ms // 100 for job in session.query(Job)} == {71}


def test_a_file_larger_than_the_key_may_send_is_refused(client, context):
    limit(context, upload_bytes=1000)
    answer = post(client)
    assert (answer.status_code, answer.json()["code"]) == (413, "media_too_large")
    assert list(context.storage.list("media/")) == []
    announced = client.post("/v1/uploads", json={"filename": "a.wav", "size_bytes": 1001})
    assert announced.status_code == 413


def test_a_keys_class_is_the_best_its_jobs_get(client, context):
    limit(context, priority="standard")
    assert post(client, priority="interactive").json()["priority"] == "standard"
    assert post(client, priority="bulk").json()["priority"] == "bulk"


@pytest.mark.parametrize(
    "own",
    [{"request_per_min": 1}, {"active_jobs": -1}, {"active_jobs": True}, {"priority": "urgent"}],
)
def test_limits_that_mean_nothing_are_refused(own):
    with pytest.raises(InvalidOption):
        check_own_limits(own)
