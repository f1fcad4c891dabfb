"""`Idempotency-Key` where the answer is waited for: one job, one answer, however often asked."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import select

from api.context import ApiContext
from core.db import read_session
from models import Job, JobStatus
from tests.integration.api.conftest import SPEECH
from tests.integration.api.fakes import FakeWorker
from tests.integration.api.servers import Server
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
    return sum(context.waiting.values())


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
