import json
from datetime import UTC, datetime

import pytest

from core.db import unit_of_work
from core.events import EventType
from lifecycle.deliveries import forget_deliveries
from lifecycle.events import record_event
from lifecycle.jobs import cancel_job, fail_job, get_job, lock_job, retry_job
from lifecycle.views import JobView
from models import DeliveryStatus

URL = "https://example.com/hook"
SIGNED_WITH = "whsec_x"


class Queue:
    def prepare(self, job_id, *, priority):
        pass


def test_the_end_of_a_job_is_delivered_once_to_each_target(world, publisher):
    endpoint_id = world.endpoint(URL)
    job_id = world.job(webhook_url="https://example.org/own")

    world.fail(job_id)

    deliveries = world.deliveries()
    assert {d.target_key for d in deliveries} == {str(endpoint_id), "direct"}
    assert len({d.event_id for d in deliveries}) == 1
    assert {d.event_type for d in deliveries} == {"job.failed"}
    assert publisher.nudges == 1


def test_the_body_is_the_job_as_get_shows_it(world, sessions):
    job_id = world.job(webhook_url=URL, job_metadata={"ort": "Zürich"}, webhook_secret=SIGNED_WITH)
    world.fail(job_id)

    (delivery,) = world.deliveries()
    body = json.loads(delivery.body)
    with sessions() as session:
        view = JobView.of(get_job(session, world.key_id, job_id)).model_dump(mode="json")
    assert set(body) == {"type", "timestamp", "data"}
    assert body["type"] == "job.failed"
    assert body["data"] == view
    assert body["data"]["error"] == {"code": "media_undecodable", "message": "könnte nicht"}
    assert "Zürich".encode() in delivery.body
    assert b"whsec_" not in delivery.body


def test_an_event_without_a_target_creates_nothing_and_wakes_nobody(world, publisher):
    world.fail(world.job())
    assert world.deliveries() == []
    assert publisher.nudges == 0


def test_endpoints_hear_only_what_they_asked_for_and_only_of_their_own_key(world):
    world.endpoint(URL, events=["job.completed"])
    world.endpoint(URL, key_id=world.key())
    world.endpoint(URL, disabled_at=datetime.now(UTC), disabled_reason="gone")
    wanted = world.endpoint(URL, events=["job.failed", "job.cancelled"])

    world.fail(world.job())

    assert [d.endpoint_id for d in world.deliveries()] == [wanted]


def test_a_transaction_that_fails_leaves_neither_end_nor_delivery(world, sessions, publisher):
    world.endpoint(URL)
    job_id = world.job()

    with pytest.raises(RuntimeError, match="lost"), unit_of_work(sessions) as uow:
        job = lock_job(uow.session, job_id)
        fail_job(uow, publisher, job, error_code="x", error_message="", now=datetime.now(UTC))
        raise RuntimeError("connection lost")

    assert world.deliveries() == []
    assert publisher.nudges == 0
    with sessions() as session:
        assert get_job(session, None, job_id).status == "queued"


def test_a_job_that_fails_again_after_a_retry_is_a_new_event(world, sessions, publisher):
    world.endpoint(URL)
    job_id = world.job()
    world.fail(job_id)
    with unit_of_work(sessions) as uow:
        job = get_job(uow.session, None, job_id)
        retry_job(uow, Queue(), publisher, job, now=datetime.now(UTC))
    world.fail(job_id)

    assert len({d.event_id for d in world.deliveries()}) == 2


def test_creating_the_deliveries_of_one_event_twice_creates_them_once(world, sessions, publisher):
    from lifecycle.deliveries import announce_end

    world.endpoint(URL)
    job_id = world.job()
    with unit_of_work(sessions) as uow:
        job = get_job(uow.session, None, job_id)
        cancel_job(uow, publisher, job, now=datetime.now(UTC))
    with unit_of_work(sessions) as uow:
        event = publisher.events[-1]
        assert event.type is EventType.JOB_CANCELLED
        job = get_job(uow.session, None, job_id)
        announce_end(uow, publisher, job, event)
        announce_end(uow, publisher, job, event)

    assert len(world.deliveries()) == 1


def test_events_before_the_last_go_to_no_webhook(world, sessions, publisher):
    world.endpoint(URL)
    job_id = world.job()
    with unit_of_work(sessions) as uow:
        job = lock_job(uow.session, job_id)
        record_event(uow, publisher, job, EventType.JOB_UPDATED, {}, now=datetime.now(UTC))
    assert world.deliveries() == []


def test_the_end_of_a_retention_keeps_what_was_not_sent_yet(world, sessions):
    world.endpoint(URL)
    sent, unsent = world.job(), world.job()
    world.fail(sent)
    world.fail(unsent)
    with unit_of_work(sessions) as uow:
        for delivery in world.deliveries():
            if delivery.subject_id == sent:
                row = uow.session.merge(delivery)
                row.claim(until=datetime.now(UTC))
                row.move_to(DeliveryStatus.DELIVERED, now=datetime.now(UTC))
    with unit_of_work(sessions) as uow:
        forget_deliveries(uow.session, [sent, unsent], keep_unsent=True)
    assert [d.subject_id for d in world.deliveries()] == [unsent]
    with unit_of_work(sessions) as uow:
        forget_deliveries(uow.session, [unsent], keep_unsent=False)
    assert world.deliveries() == []
