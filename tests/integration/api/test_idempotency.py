import threading

import pytest
from sqlalchemy import select

from core.db import read_session
from models import IdempotentAnswer, Job
from tests.integration.api.conftest import SPEECH, client_of, make_key

AUDIO = SPEECH.read_bytes()


def post(client, key, *, audio=AUDIO, **fields):
    return client.post(
        "/v1/jobs",
        files={"file": ("a.wav", audio, "audio/wav")},
        data=fields,
        headers={"Idempotency-Key": key},
    )


def num_jobs(context):
    with read_session(context.sessions) as session:
        return len(session.scalars(select(Job.id)).all())


def num_objects(context):
    return len(list(context.storage.list("media/")))


def test_ten_posts_at_once_with_one_key_make_one_job(context, queue):
    key = make_key(context)
    answers = []
    barrier = threading.Barrier(10)
    with client_of(context, key) as client:

        def send():
            barrier.wait()
            answers.append(post(client, "k1"))

        threads = [threading.Thread(target=send) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert {a.status_code for a in answers} == {202}
    assert len({a.json()["id"] for a in answers}) == 1
    assert len({a.headers["location"] for a in answers}) == 1
    assert num_jobs(context) == 1
    assert num_objects(context) == 1
    assert queue.num_prepared == 1


def test_the_same_request_again_gets_the_same_answer(client, context):
    first = post(client, "k", reference="r")
    second = post(client, "k", reference="r")
    assert second.status_code == 202
    assert second.json() == first.json()
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers


@pytest.mark.parametrize("change", [{"audio": AUDIO[:-2]}, {"reference": "other"}])
def test_another_request_under_the_same_key_is_a_conflict_and_leaves_nothing(
    client, context, change
):
    assert post(client, "k").status_code == 202
    answer = post(client, "k", **change)
    assert answer.status_code == 409
    assert answer.json()["code"] == "idempotency_mismatch"
    assert num_jobs(context) == 1
    assert num_objects(context) == 1


def test_the_same_key_of_another_caller_is_another_key(client, context):
    first = post(client, "k")
    with client_of(context, make_key(context, name="other")) as other:
        second = post(other, "k")
    assert second.json()["id"] != first.json()["id"]


def test_a_refused_request_does_not_use_up_its_key(client, context):
    assert post(client, "k", audio=b"not audio at all").status_code == 400
    assert post(client, "k").status_code == 202


def test_deleting_the_job_forgets_its_answer(client):
    first = post(client, "k")
    assert client.delete(f"/v1/jobs/{first.json()['id']}").status_code == 204
    second = post(client, "k")
    assert second.status_code == 202
    assert second.json()["id"] != first.json()["id"]


@pytest.mark.parametrize("key", ["", " ", "x" * 256])
def test_an_unusable_key_is_refused_by_name(sqlite_client, key):
    answer = post(sqlite_client, key)
    assert answer.status_code in {400, 422}
    assert "idempotency-key" in answer.text.lower()


def test_answers_that_hold_secrets_are_repeated_and_unreadable_in_the_database(context):
    posts = {
        "/v1/webhooks": {"url": "https://example.com/hook"},
        "/v1/keys": {"name": "new", "scopes": ["read"]},
        "/v1/uploads": {"filename": "a.wav", "size_bytes": 10},
    }
    with client_of(context, make_key(context, "admin")) as client:
        for number, (route, body) in enumerate(posts.items()):
            headers = {"Idempotency-Key": f"key-{number}"}
            first = client.post(route, json=body, headers=headers)
            second = client.post(route, json=body, headers=headers)
            assert first.status_code == 201, first.text
            assert (second.json(), second.headers["location"]) == (
                first.json(), first.headers["location"],
            )  # fmt: skip
            assert second.headers["idempotent-replayed"] == "true"
    with read_session(context.sessions) as session:
        rows = session.scalars(select(IdempotentAnswer)).all()
    assert len(rows) == len(posts)
    for row in rows:
        for text in (b"whsec_", b"sk-", b"token=", b"example.com", b"{"):
            assert text not in row.body
        assert "key-" not in row.idempotency_key


def test_secrets_and_test_events_are_made_once(sqlite_client):
    created = sqlite_client.post("/v1/webhooks", json={"url": "https://example.com/hook"}).json()
    endpoint = f"/v1/webhooks/{created['id']}"
    for route in (f"{endpoint}/rotate", "/v1/webhooks/signing-secret", f"{endpoint}/test"):
        headers = {"Idempotency-Key": route}
        first, second = (sqlite_client.post(route, headers=headers) for _ in range(2))
        assert first.status_code in {200, 202}, first.text
        assert (second.status_code, second.json()) == (first.status_code, first.json())
        assert sqlite_client.post(route).json() != first.json()
    other = sqlite_client.post("/v1/webhooks", json={"url": "https://example.com/other"}).json()
    headers = {"Idempotency-Key": f"{endpoint}/rotate"}
    answer = sqlite_client.post(f"/v1/webhooks/{other['id']}/rotate", headers=headers)
    assert answer.status_code == 409


def test_every_creating_route_honours_it(sqlite_client):
    bodies = {
        "/v1/webhooks": {"url": "https://example.com/hook"},
        "/v1/uploads": {"filename": "a.wav", "size_bytes": 10},
    }
    for route, body in bodies.items():
        headers = {"Idempotency-Key": "one"}
        sent = {**headers, "Idempotency-Key": route}
        first = sqlite_client.post(route, json=body, headers=sent)
        second = sqlite_client.post(route, json=body, headers=sent)
        assert first.status_code == 201, first.text
        assert second.json() == first.json()
        other = sqlite_client.post(route, json=body | {"url": "https://example.org/"}, headers=sent)
        assert other.status_code in {409, 422}
