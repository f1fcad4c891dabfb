"""Messages over a real Redis, and without one."""

import time

import pytest
from redis import Redis

from core.ids import new_id
from core.queues import MEDIA_QUEUE, CeleryQueue, asr_queue, make_celery


@pytest.fixture
def queue(redis_url: str):
    app = make_celery(redis_url)
    yield CeleryQueue(app)
    app.close()


def test_wake_ups_never_pile_up(queue) -> None:
    for _ in range(5):
        queue.wake("whisper", count=3)
    assert queue.depth(asr_queue("whisper")) == 3
    queue.wake("whisper", count=1)
    assert queue.depth(asr_queue("whisper")) == 3


def test_the_depth_counts_every_priority(queue) -> None:
    for priority in (0, 10, 20):
        queue.prepare(new_id(), priority=priority)
    assert queue.depth(MEDIA_QUEUE) == 3


def test_urgent_messages_are_told_apart_from_others(queue, redis_url) -> None:
    for priority in (0, 10, 20):
        queue.prepare(new_id(), priority=priority)
    with Redis.from_url(redis_url) as client:
        lists = {key.decode() for key in client.keys("media*")}
    assert len(lists) == 3


def test_a_broker_that_is_gone_costs_seconds_and_raises_nothing() -> None:
    app = make_celery("redis://127.0.0.1:1/0")
    queue = CeleryQueue(app)
    started = time.monotonic()
    queue.prepare(new_id(), priority=10)
    queue.wake("whisper", count=4)
    assert queue.depth(MEDIA_QUEUE) == 0
    assert time.monotonic() - started < 15
    app.close()
