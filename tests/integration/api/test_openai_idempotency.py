"""`Idempotency-Key` where the answer is waited for: one job, one answer, however often asked."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from redis import Redis
from sqlalchemy import select

from api.app import create_app
from api.context import ApiContext
from api.hub import EventHub
from api.metrics import Metrics
from api.openai import waiters as waiters_module
from api.openai import waiting as waiting_module
from api.openai.waiters import Place, Waiters
from core.db import read_session
from lifecycle.idempotency import Once
from models import LOCAL_KEY_ID, Job, JobStatus
from tests.integration.api.conftest import SPEECH, make_key
from tests.integration.api.fakes import FakeWorker
from tests.integration.api.servers import Server, serving
from tests.support.processes import wait_for

AUDIO = SPEECH.read_bytes()
KEY = "k1"


def post(
    server: Server,
    *,
    audio: bytes = AUDIO,
    key: str = KEY,
    route: str = "transcriptions",
    read_s: float = 60,
    **fields: str,
) -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1/audio/{route}",
        data={"model": "whisper-1", **fields},
        files={"file": ("a.wav", audio)},
        headers=server.headers | {"Idempotency-Key": key},
        timeout=httpx.Timeout(30, read=read_s),
    )


def jobs_of(context: ApiContext) -> list[Job]:
    with read_session(context.sessions) as session:
        return list(session.scalars(select(Job)))


def test_the_same_request_again_gets_the_same_answer_from_the_same_job(
    server: Server, worker: FakeWorker, sqlite_context: ApiContext
):
    first, second = post(server), post(server)
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.content == first.content
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert len(worker.job_ids) == 1
    assert len(list(sqlite_context.storage.list("media/"))) == 1


@pytest.mark.parametrize("change", [{"audio": AUDIO[:-2]}, {"response_format": "text"}])
def test_another_request_under_the_key_is_a_conflict_in_openais_shape(
    server: Server, worker: FakeWorker, sqlite_context: ApiContext, change
):
    assert post(server).status_code == 200
    answer = post(server, **change)
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "idempotency_mismatch"
    assert len(list(sqlite_context.storage.list("media/"))) == 1
    assert post(server, route="translations").status_code == 409


def test_translations_honour_it_too(server: Server, worker: FakeWorker):
    first, second = (post(server, route="translations") for _ in range(2))
    assert (first.status_code, first.content) == (200, second.content)
    assert len(worker.job_ids) == 1


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_an_unusable_key_is_refused_before_the_file_is_stored(
    server: Server, sqlite_context: ApiContext, key
):
    answer = post(server, key=key)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].lower() == "idempotency-key"
    assert list(sqlite_context.storage.list("")) == []


def test_repetitions_at_the_same_time_wait_for_one_job(
    server: Server, worker: FakeWorker, sqlite_context: ApiContext
):
    worker.gate.clear()
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(post, server) for _ in range(5)]
        wait_for(lambda: waiting(sqlite_context) == 5, what="all five wait")
        worker.gate.set()
        bodies = {answer.result().content for answer in answers}
    assert {answer.result().status_code for answer in answers} == {200}
    assert len(bodies) == 1
    assert len(jobs_of(sqlite_context)) == 1


def waiting(context: ApiContext) -> int:
    return context.waiters.num_here


def test_who_leaves_does_not_cancel_the_job_that_another_waits_for(
    server: Server, worker: FakeWorker, sqlite_context: ApiContext
):
    worker.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        staying = pool.submit(post, server)
        wait_for(lambda: waiting(sqlite_context) == 1, what="the first waits")
        with pytest.raises(httpx.ReadTimeout):
            post(server, read_s=2)
        wait_for(lambda: waiting(sqlite_context) == 1, what="the second has left")
        worker.gate.set()
        assert staying.result().status_code == 200


@pytest.fixture
def processes(sqlite_context: ApiContext, redis_url: str) -> Iterator[list[Server]]:
    """Two API processes on one database and one Redis."""
    key = make_key(sqlite_context)
    with Redis.from_url(redis_url) as redis, ExitStack() as cleanup:
        servers = []
        for _ in range(2):
            context = replace(
                sqlite_context,
                hub=EventHub(redis_url),
                metrics=Metrics(),
                waiters=Waiters(redis),
            )
            url = cleanup.enter_context(serving(create_app(context)))
            servers.append(Server(url=url, key=key))
        yield servers


class Cancels:
    """Holds those who give up just before they look whether anybody else waits."""

    def __init__(self, real: Callable[..., None]) -> None:
        self.may_run, self.came, self.ran = threading.Event(), threading.Event(), threading.Event()
        self._real = real

    def __call__(self, *args: Any) -> None:
        self.came.set()
        assert self.may_run.wait(30)
        self._real(*args)
        self.ran.set()


@pytest.fixture
def cancels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cancels]:
    cancels = Cancels(waiting_module._cancel)
    monkeypatch.setattr(waiting_module, "_cancel", cancels)
    yield cancels
    cancels.may_run.set()


@pytest.mark.parametrize("stream", ["false", "true"])
def test_who_leaves_one_process_does_not_cancel_for_who_waits_in_another(
    processes: list[Server],
    worker: FakeWorker,
    sqlite_context: ApiContext,
    cancels: Cancels,
    stream: str,
):
    worker.gate.clear()
    cancels.may_run.set()
    here, there = processes
    with ThreadPoolExecutor(1) as pool:
        staying = pool.submit(post, here, stream=stream)
        wait_for(lambda: is_awaited(sqlite_context), what="the first waits")
        with pytest.raises(httpx.ReadTimeout):
            post(there, read_s=2, stream=stream)
        assert cancels.ran.wait(30)  # the second has left
        worker.gate.set()
        assert staying.result().status_code == 200
        assert [job.status for job in jobs_of(sqlite_context)] == [JobStatus.COMPLETED]
        assert len(jobs_of(sqlite_context)) == 1
        wait_for(lambda: not is_awaited(sqlite_context), what="nothing is left behind")


def test_who_comes_while_another_gives_up_gets_an_answer(
    processes: list[Server], worker: FakeWorker, sqlite_context: ApiContext, cancels: Cancels
):
    worker.gate.clear()
    here, there = processes
    with pytest.raises(httpx.ReadTimeout):
        post(here, read_s=2)
    assert cancels.came.wait(30)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(post, there)
        wait_for(lambda: is_awaited(sqlite_context), what="the second waits")
        cancels.may_run.set()
        assert cancels.ran.wait(30)
        worker.gate.set()
        assert coming.result().status_code == 200


def is_awaited(context: ApiContext) -> bool:
    with Redis.from_url(context.settings.redis) as redis:
        return bool(redis.keys("waiting:*"))


def test_a_process_that_died_holds_no_job(redis_url: str):
    once = Once(key_id=LOCAL_KEY_ID, idempotency_key="k", fingerprint="")

    async def die() -> Place:
        return await Waiters(redis, lease_s=0.3).enter(once)

    async def renew() -> bool:
        waiters = Waiters(redis, lease_s=0.3)
        place = await waiters.enter(once)
        first = redis.zscore(place.name, place.token) or 0
        with suppress(TimeoutError):
            await asyncio.wait_for(waiters.run(), 0.4)
        return (redis.zscore(place.name, place.token) or 0) > first

    with Redis.from_url(redis_url) as redis:
        dead, other = asyncio.run(die()), Waiters(redis)
        wait_for(lambda: not other.is_awaited(dead.name), what="its lease has expired")
        wait_for(lambda: asyncio.run(renew()), what="who lives is renewed")


def test_who_leaves_while_it_is_renewed_has_left(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiters_module, "RENEWALS_PER_LEASE", 1000)  # soon, and valid for long
    once = Once(key_id=LOCAL_KEY_ID, idempotency_key="k", fingerprint="")

    async def leave_late(redis: Redis) -> None:
        waiters, loop = Waiters(redis), asyncio.get_running_loop()
        place = await waiters.enter(once)
        real, renewed = waiters._renew, threading.Event()

        def renew(tokens: dict[str, set[str]]) -> None:
            asyncio.run_coroutine_threadsafe(place.leave(), loop).result(30)
            real(tokens)
            renewed.set()

        monkeypatch.setattr(waiters, "_renew", renew)
        running = asyncio.create_task(waiters.run())
        try:
            assert await asyncio.to_thread(renewed.wait, 30)
            gone = partial(wait_for, lambda: not waiters.is_awaited(place.name), timeout_s=20)
            await asyncio.to_thread(gone, what="nobody waits")  # its lease would last longer
        finally:
            running.cancel()

    with Redis.from_url(redis_url) as redis:
        asyncio.run(leave_late(redis))


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_request_that_broke_off_goes_on_when_it_is_repeated(
    server: Server, worker: FakeWorker, sqlite_context: ApiContext, stream
):
    worker.gate.clear()
    with pytest.raises(httpx.ReadTimeout):
        post(server, read_s=2, stream=stream)
    wait_for(
        lambda: [job.status for job in jobs_of(sqlite_context)] == [JobStatus.CANCELLED],
        what="the job is cancelled",
    )
    worker.gate.set()
    answer = post(server, stream=stream)
    assert answer.status_code == 200
    assert "Hello there. How are you?" in answer.text
    assert [job.status for job in jobs_of(sqlite_context)] == [JobStatus.COMPLETED]


def test_a_failure_of_ours_is_tried_again_and_one_of_the_callers_is_not(
    server: Server, worker: FakeWorker, sqlite_context: ApiContext
):
    worker.failure = ("worker_lost", "Again and again.")
    assert post(server, key="ours").status_code == 500
    worker.failure = ("media_gone", "The object vanished.")
    assert post(server, key="theirs").status_code == 400
    worker.failure = None
    assert post(server, key="ours").status_code == 200
    assert post(server, key="theirs").status_code == 400
    assert len(jobs_of(sqlite_context)) == 2


def test_a_stream_is_repeated_event_by_event(server: Server, worker: FakeWorker):
    first, second = post(server, stream="true"), post(server, stream="true")
    events = [line for line in first.text.splitlines() if line.startswith("data: ")]
    assert events
    assert [line for line in second.text.splitlines() if line.startswith("data: ")] == events
    assert len(worker.job_ids) == 1
