"""Numbers of events: without a gap and in commit order, whoever records them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from core.db import read_session, unit_of_work
from core.events import EventType
from lifecycle.events import record_event
from lifecycle.jobs import lock_job
from models import Event, Job
from tests.support.pipeline import EventLog

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NUM_WORKERS = 4
NUM_EVENTS = 8


def test_workers_that_record_at_once_get_numbers_without_a_gap(sessions, make_job) -> None:
    job_id = make_job()
    published = EventLog()
    together = threading.Barrier(NUM_WORKERS)

    def record(worker: int) -> None:
        together.wait()
        for number in range(NUM_EVENTS):
            with unit_of_work(sessions) as uow:
                job = lock_job(uow.session, job_id)
                data = {"worker": worker, "number": number}
                record_event(uow, published, job, EventType.JOB_UPDATED, data, now=NOW)

    with ThreadPoolExecutor(NUM_WORKERS) as pool:
        list(pool.map(record, range(NUM_WORKERS)))
    with read_session(sessions) as session:
        events = session.scalars(select(Event).where(Event.job_id == job_id)).all()
        assert session.get_one(Job, job_id).last_seq == NUM_WORKERS * NUM_EVENTS
    assert sorted(e.seq for e in events) == list(range(1, NUM_WORKERS * NUM_EVENTS + 1))
    assert {(e.seq, e.data["worker"]) for e in events} == {
        (e.seq, e.data["worker"]) for e in published.published
    }


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_number_is_refused_the_second_time(sessions, make_job) -> None:
    """Whoever forgets the lock is told by the primary key, and nothing is lost in silence.

    On SQLite there is nothing to forget: one transaction writes at a time.
    """
    job_id = make_job()
    log = EventLog()
    with pytest.raises(IntegrityError), unit_of_work(sessions) as careless:
        stale = careless.session.get_one(Job, job_id)
        with unit_of_work(sessions) as uow:
            job = lock_job(uow.session, job_id)
            record_event(uow, log, job, EventType.JOB_UPDATED, {}, now=NOW)
        record_event(careless, log, stale, EventType.JOB_UPDATED, {}, now=NOW)
    assert [event.seq for event in log.published] == [1]


def test_events_of_one_transaction_are_published_together_and_in_order(sessions, make_job) -> None:
    calls = []

    class Publisher(EventLog):
        def publish(self, *events) -> None:
            calls.append([event.seq for event in events])

    publisher = Publisher()
    job_id = make_job()
    with unit_of_work(sessions) as uow:
        job = lock_job(uow.session, job_id)
        for _ in range(3):
            record_event(uow, publisher, job, EventType.JOB_UPDATED, {}, now=NOW)
            uow.after_commit(lambda: None)
    assert calls == [[1, 2, 3]]
