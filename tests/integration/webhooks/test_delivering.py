import json
import socket
import time
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from sqlalchemy import update
from standardwebhooks import Webhook

from core.db import unit_of_work
from core.signing import new_secret
from lifecycle.attempts import MAX_PER_HOST, claim_due, release_expired, replay
from lifecycle.endpoints import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PAUSE_AFTER_FAILURES,
    UNREACHABLE_AFTER,
    rotate_secret,
)
from models import ApiKey, Delivery, DeliveryAttempt, DeliveryStatus, WebhookEndpoint
from tests.integration.webhooks.receiver import serving
from workers.deliver import Deliverer


@pytest.fixture
def deliver(sessions, settings):
    """Make the attempts that are due at `now` (default: the real time)."""

    def run(*, at=None, resolver=None, **overrides):
        overrides = {"webhook_allow_private": True, "webhook_timeout_s": 1.0} | overrides
        now = (lambda: at) if at is not None else (lambda: datetime.now(UTC))
        deliverer = Deliverer(sessions, settings(**overrides), resolver=resolver, now=now)
        return deliverer.run(slice_s=5)

    return run


def attempts(world):
    with world.sessions() as session:
        return list(
            session.query(DeliveryAttempt).order_by(
                DeliveryAttempt.delivery_id, DeliveryAttempt.number
            )
        )


def due_time(world):
    (delivery,) = world.deliveries()
    return delivery.next_attempt_at


def test_the_receiver_can_verify_exactly_what_was_sent(world, receiver, deliver):
    secret = new_secret()
    job_id = world.job(webhook_url=receiver.url, webhook_secret=secret)
    world.fail(job_id)

    assert deliver() == 1

    (request,) = receiver.requests
    payload = Webhook(secret).verify(request.body, request.headers)
    assert payload["data"]["id"] == str(job_id)
    assert payload["data"]["status"] == "failed"
    assert payload["data"]["filename"] == "Zürich 会議.wav"
    assert "会議".encode() in request.body
    assert request.headers["content-type"] == "application/json"
    (delivery,) = world.deliveries()
    assert (delivery.status, delivery.attempt, delivery.last_status) == ("delivered", 1, 204)
    (attempt,) = attempts(world)
    assert (attempt.number, attempt.response_status, attempt.error) == (1, 204, None)


def test_without_a_secret_of_its_own_a_job_uses_the_keys(world, receiver, deliver):
    world.fail(world.job(webhook_url=receiver.url))
    deliver()
    secret = world.get(ApiKey, world.key_id).webhook_secret
    (request,) = receiver.requests
    Webhook(secret).verify(request.body, request.headers)


def test_two_failures_then_success_keep_the_id_and_renew_the_signature(world, receiver, deliver):
    receiver.answer(500, 500, 200)
    secret = new_secret()
    world.fail(world.job(webhook_url=receiver.url, webhook_secret=secret))

    deliver()
    first_wait = due_time(world) - datetime.now(UTC)
    time.sleep(1.1)  # the timestamp has whole seconds
    later = datetime.now(UTC) + timedelta(seconds=7)
    deliver(at=later)
    second_wait = due_time(world) - later
    deliver(at=later + timedelta(minutes=6))

    assert timedelta(seconds=4) < first_wait <= timedelta(seconds=6)
    assert timedelta(minutes=5) <= second_wait <= timedelta(minutes=6)
    assert len({r.headers["webhook-id"] for r in receiver.requests}) == 1
    assert len({r.headers["webhook-timestamp"] for r in receiver.requests}) == 3
    assert len({r.headers["webhook-signature"] for r in receiver.requests}) == 3
    assert len({r.body for r in receiver.requests}) == 1
    (delivery,) = world.deliveries()
    assert delivery.status == "delivered"
    assert [a.response_status for a in attempts(world)] == [500, 500, 200]


def test_nothing_is_tried_before_it_is_due(world, receiver, deliver):
    receiver.answer(500)
    world.fail(world.job(webhook_url=receiver.url))
    deliver()
    assert deliver() == 0
    assert len(receiver.requests) == 1


def test_after_the_last_step_it_has_failed_and_a_replay_begins_anew(
    world, sessions, receiver, deliver
):
    receiver.answer(500, 500, 200)
    world.fail(world.job(webhook_url=receiver.url))
    for _ in range(2):
        deliver(webhook_retry_s="0,0")
    assert world.deliveries()[0].status == "failed"

    with unit_of_work(sessions) as uow:
        replay(uow.session, uow.session.query(Delivery).one(), now=datetime.now(UTC))
    deliver(webhook_retry_s="0,0")

    (delivery,) = world.deliveries()
    assert (delivery.status, delivery.attempt) == ("delivered", 3)
    assert len({r.headers["webhook-id"] for r in receiver.requests}) == 1


@pytest.mark.parametrize("status", [0, -1], ids=["never answers", "drips bytes"])
def test_an_attempt_ends_at_its_limit_in_total(world, receiver, deliver, status):
    receiver.answer(status)
    world.fail(world.job(webhook_url=receiver.url))

    started = time.monotonic()
    deliver(webhook_timeout_s=0.7)

    assert time.monotonic() - started < 3
    (attempt,) = attempts(world)
    assert (attempt.response_status, attempt.error) == (None, "timeout")
    assert 650 <= attempt.duration_ms < 2500


def test_a_slow_receiver_holds_up_nobody_else(world, receiver, deliver):
    receiver.answer(0)
    for _ in range(3 * MAX_PER_HOST):
        world.fail(world.job(webhook_url=receiver.url))
    with serving() as quick:
        for _ in range(10):
            world.fail(world.job(webhook_url=quick.url))
        deliver(webhook_timeout_s=2.0, webhook_concurrency=8)
        done = [d for d in world.deliveries() if d.url == quick.url]

    assert {d.status for d in done} == {"delivered"}
    slow = [a for a in attempts(world) if a.error == "timeout"]
    last_quick = max(d.finished_at for d in done)
    assert last_quick - min(a.started_at for a in slow) < timedelta(seconds=1.9)


def test_no_more_attempts_at_once_go_to_one_host_than_the_limit(world, sessions, receiver):
    for _ in range(MAX_PER_HOST + 3):
        world.fail(world.job(webhook_url=receiver.url))
    now = datetime.now(UTC) + timedelta(seconds=1)
    lease = timedelta(seconds=30)
    with unit_of_work(sessions) as uow:
        assert len(claim_due(uow.session, limit=3, lease=lease, now=now)) == 3
    with unit_of_work(sessions) as uow:
        claims = claim_due(uow.session, limit=100, lease=lease, now=now)
    assert len(claims) == MAX_PER_HOST - 3


def test_a_redirect_is_not_followed(world, receiver, deliver):
    with serving() as inner:
        receiver.answer(302, headers={"location": inner.url})
        world.fail(world.job(webhook_url=receiver.url))
        deliver()
        assert inner.requests == []
    (attempt,) = attempts(world)
    assert (attempt.response_status, attempt.error) == (302, "http_302")
    assert world.deliveries()[0].status == "pending"


def resolving_to(*addresses):
    def resolve(host, port, *args, **kwargs):
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses
        ]

    return resolve


@pytest.mark.parametrize(
    "addresses", [("127.0.0.1",), ("93.184.216.34", "127.0.0.1"), ("169.254.169.254",)]
)
def test_a_name_that_points_inside_is_not_contacted(world, receiver, deliver, addresses):
    world.fail(world.job(webhook_url=f"http://inner.example:{receiver.port}/hook"))
    deliver(webhook_allow_private=False, resolver=resolving_to(*addresses))
    assert receiver.requests == []
    (attempt,) = attempts(world)
    assert attempt.error == "address_not_allowed"


def test_the_environments_proxy_is_not_used(world, receiver, deliver, monkeypatch):
    with serving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        world.fail(world.job(webhook_url=receiver.url))
        deliver()
        assert proxy.requests == []
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [("120", 120), ("999999999", 86_400), ("soon", 5), ("-3", 5), ("1", 5)],
)
def test_retry_after_is_honoured_within_bounds(world, receiver, deliver, header, expected_s):
    receiver.answer(503, headers={"retry-after": header})
    world.fail(world.job(webhook_url=receiver.url))
    at = datetime.now(UTC) + timedelta(seconds=1)
    deliver(at=at)
    waited_s = (due_time(world) - at).total_seconds()
    assert expected_s <= waited_s <= expected_s + 1


def test_retry_after_may_be_a_date(world, receiver, deliver):
    world.fail(world.job(webhook_url=receiver.url))
    # HTTP dates are whole seconds: the next one at which the event above is surely due.
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    http_date = (at + timedelta(minutes=30)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    receiver.answer(429, headers={"retry-after": http_date})
    assert deliver(at=at) == 1
    assert due_time(world) - at == timedelta(minutes=30)


def test_gone_disables_the_endpoint_and_ends_what_waits_for_it(world, receiver, deliver):
    receiver.answer(410)
    endpoint_id = world.endpoint(receiver.url)
    for _ in range(MAX_PER_HOST + 4):
        world.fail(world.job())
    deliver()
    endpoint = world.get(WebhookEndpoint, endpoint_id)
    assert endpoint.disabled_reason == "gone"
    assert {d.status for d in world.deliveries()} == {"failed", "cancelled"}
    assert len(receiver.requests) <= 2 * MAX_PER_HOST
    world.fail(world.job())
    assert deliver() == 0


def test_gone_ends_a_jobs_own_url_at_once(world, receiver, deliver):
    receiver.answer(410)
    world.fail(world.job(webhook_url=receiver.url))
    deliver()
    assert world.deliveries()[0].status == "failed"


def fail_endpoint(world, deliver, *, times, at):
    for _ in range(times):
        world.fail(world.job())
        deliver(at=at)


def test_a_dead_endpoint_is_paused_and_comes_back_with_nothing_lost(world, receiver, deliver):
    receiver.answer(500)
    endpoint_id = world.endpoint(receiver.url)
    at = datetime.now(UTC) + timedelta(minutes=1)
    fail_endpoint(world, deliver, times=PAUSE_AFTER_FAILURES, at=at)
    paused_until = world.get(WebhookEndpoint, endpoint_id).paused_until
    assert at < paused_until <= at + LONGEST_PAUSE

    world.fail(world.job())
    assert min(d.next_attempt_at for d in world.deliveries()) >= paused_until
    assert deliver(at=paused_until - timedelta(seconds=1)) == 0

    receiver.answer(200)
    deliver(at=paused_until + timedelta(minutes=10))
    assert {d.status for d in world.deliveries()} == {"delivered"}
    endpoint = world.get(WebhookEndpoint, endpoint_id)
    assert (endpoint.failures, endpoint.failing_since, endpoint.paused_until) == (0, None, None)


def test_attempts_that_fail_together_pause_their_endpoint_once(world, receiver, deliver):
    receiver.answer(500)
    at = datetime.now(UTC) + timedelta(minutes=1)
    before = PAUSE_AFTER_FAILURES - 1
    endpoint_id = world.endpoint(receiver.url, failures=before, failing_since=at)
    for _ in range(MAX_PER_HOST):
        world.fail(world.job())
    deliver(at=at)
    endpoint = world.get(WebhookEndpoint, endpoint_id)
    assert len(receiver.requests) == MAX_PER_HOST
    assert endpoint.failures == PAUSE_AFTER_FAILURES
    assert endpoint.paused_until - at == FIRST_PAUSE
    assert min(d.next_attempt_at for d in world.deliveries()) == endpoint.paused_until


def test_an_endpoint_that_fails_for_days_is_disabled(world, receiver, deliver):
    receiver.answer(500)
    at = datetime.now(UTC) + timedelta(minutes=1)
    since = at - UNREACHABLE_AFTER - timedelta(hours=1)
    endpoint_id = world.endpoint(receiver.url, failures=9, failing_since=since)
    fail_endpoint(world, deliver, times=1, at=at)
    assert world.get(WebhookEndpoint, endpoint_id).disabled_reason == "unreachable"
    assert [d.status for d in world.deliveries()] == ["cancelled"]


def test_while_a_secret_rotates_old_and_new_both_verify(world, sessions, receiver, deliver):
    endpoint_id = world.endpoint(receiver.url)
    old, new = world.get(WebhookEndpoint, endpoint_id).secret, new_secret()
    with unit_of_work(sessions) as uow:
        rotate_secret(
            uow.session.get(WebhookEndpoint, endpoint_id), secret=new, now=datetime.now(UTC)
        )
    world.fail(world.job())
    deliver()
    (request,) = receiver.requests
    for secret in (old, new):
        Webhook(secret).verify(request.body, request.headers)

    with unit_of_work(sessions) as uow:
        uow.session.execute(
            update(WebhookEndpoint).values(previous_secret_expires_at=datetime.now(UTC))
        )
    world.fail(world.job())
    deliver()
    assert len(receiver.requests[1].headers["webhook-signature"].split()) == 1


def test_the_answers_body_is_kept_up_to_a_kibibyte(world, receiver, deliver):
    receiver.answers = [(500, {}, b"\x00" + "é".encode() * 4000)]
    world.fail(world.job(webhook_url=receiver.url))
    deliver()
    (attempt,) = attempts(world)
    assert attempt.response_body.startswith("\ufffdé")
    assert len(attempt.response_body) <= 1024


def test_a_delivery_whose_worker_died_is_tried_again(world, sessions, receiver, deliver):
    world.fail(world.job(webhook_url=receiver.url))
    now = datetime.now(UTC) + timedelta(seconds=1)
    with unit_of_work(sessions) as uow:
        claim_due(uow.session, limit=10, lease=timedelta(seconds=30), now=now)
    assert deliver(at=now + timedelta(seconds=20)) == 0

    later = now + timedelta(seconds=31)
    assert deliver(at=later) == 0  # but it was put back
    deliver(at=later + timedelta(seconds=7))

    (delivery,) = world.deliveries()
    assert (delivery.status, delivery.attempt) == ("delivered", 2)
    assert [a.error for a in attempts(world)] == ["worker_lost", None]


def test_an_attempt_that_lost_its_lease_cannot_write(world, sessions):
    from lifecycle.attempts import Answer, settle

    world.fail(world.job(webhook_url="http://192.0.2.1/"))
    now = datetime.now(UTC) + timedelta(seconds=1)
    with unit_of_work(sessions) as uow:
        (first,) = claim_due(uow.session, limit=1, lease=timedelta(seconds=1), now=now)
    with unit_of_work(sessions) as uow:
        release_expired(uow.session, schedule_s=(0, 0), now=now + timedelta(seconds=2))
    with unit_of_work(sessions) as uow:
        claim_due(uow.session, limit=1, lease=timedelta(seconds=1), now=now + timedelta(seconds=3))
    with unit_of_work(sessions) as uow:
        answer = Answer(started_at=now, duration_ms=1, status=200)
        assert settle(uow.session, first, answer, schedule_s=(0,), now=now) is None
    assert world.deliveries()[0].status == DeliveryStatus.RUNNING


def test_the_log_has_no_secret_and_no_body(world, receiver, deliver):
    secret = new_secret()
    world.fail(world.job(webhook_url=receiver.url, webhook_secret=secret))
    with structlog.testing.capture_logs() as logs:
        deliver()
    text = json.dumps(logs, default=str)
    assert "delivery.attempted" in text
    assert secret not in text
    assert receiver.url not in text
    assert "会議" not in text
