"""Uploads, remote media, batches and webhooks through real processes, over a restart of all."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook

from core.signing import new_secret
from tests.e2e.conftest import KENNEDY
from tests.integration.remote.source import Source
from tests.integration.remote.source import serving as serving_source
from tests.integration.webhooks.receiver import Receiver
from tests.integration.webhooks.receiver import serving as serving_receiver
from tests.support.processes import wait_for
from tests.support.stack import JOB_S, Stack

OPTIONS = {"language": "en"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving_receiver() as receiver:
        yield receiver


@pytest.fixture
def source() -> Iterator[Source]:
    with serving_source() as source:
        source.body, source.content_type = KENNEDY.read_bytes(), "audio/flac"
        yield source


def upload(stack: Stack, path: Path) -> str:
    data = path.read_bytes()
    answer = stack.client.post("/v1/uploads", json={"filename": path.name, "size_bytes": len(data)})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    sent = httpx.put(
        made["url"], content=data, headers=made["headers"], timeout=60, trust_env=False
    )
    assert sent.status_code in {200, 204}, sent.text
    upload_id: str = made["id"]
    return upload_id


def test_a_batch_of_every_kind_of_source_and_its_webhook_survive_a_restart(
    base_env: dict[str, str], tmp_path: Path, receiver: Receiver, source: Source
) -> None:
    env = base_env | {
        "SCRIPTORIUM_WEBHOOK_ALLOW_PRIVATE": "1",
        "SCRIPTORIUM_WEBHOOK_TIMEOUT_S": "3",
        "SCRIPTORIUM_WEBHOOK_RETRY_S": "0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
    }
    receiver.answer(500)
    stack = Stack(data=tmp_path / "data", env=env)
    try:
        lines = [
            {"custom_id": "upload", "upload_id": upload(stack, KENNEDY)},
            {"custom_id": "url", "media_url": source.url, "media_headers": {"X-Token": "t"}},
            {"custom_id": "bad", "media_key": "inbox/nothing.flac"},
        ]
        answer = stack.client.post(
            "/v1/batches",
            content="".join(json.dumps(line) + "\n" for line in lines),
            headers={"content-type": "application/x-ndjson"},
            params={"options": json.dumps(OPTIONS), "webhook_url": receiver.url},
        )
        assert answer.status_code == 202, answer.text
        batch_id = answer.json()["id"]
        wait_for(
            lambda: receiver.requests,
            what="the webhook is tried",
            timeout_s=JOB_S,
            process=stack.process,
        )
        assert stack.stop() == 0
        key = stack.key

        receiver.answer(204)
        stack = Stack(data=tmp_path / "data", env=env, key=key)
        deliveries = wait_for(
            lambda: [
                d
                for d in stack.client.get("/v1/deliveries").json()["data"]
                if d["status"] == "delivered"
            ],
            what="the webhook is delivered",
            timeout_s=120,
            process=stack.process,
        )
        view = stack.client.get(f"/v1/batches/{batch_id}").json()
        results = [
            json.loads(line)
            for line in stack.client.get(f"/v1/batches/{batch_id}/results").text.splitlines()
        ]
    finally:
        stack.stop()
    assert [d["event_type"] for d in deliveries] == ["batch.completed"]
    assert len({r.headers["webhook-id"] for r in receiver.requests}) == 1
    assert json.loads(receiver.requests[-1].body)["data"] == view
    assert (view["counts"]["completed"], view["counts"]["failed"]) == (2, 1)
    by_name = {r["custom_id"]: r for r in results}
    assert "ask not" in by_name["upload"]["text"].lower()
    assert by_name["url"]["text"] == by_name["upload"]["text"]
    assert by_name["bad"]["error"]["code"] == "media_not_found"
    assert source.requests[0][1]["x-token"] == "t"


def test_a_jobs_webhook_can_be_verified_and_the_same_again_is_reused(
    base_env: dict[str, str], tmp_path: Path, receiver: Receiver
) -> None:
    env = base_env | {"SCRIPTORIUM_WEBHOOK_ALLOW_PRIVATE": "1"}
    secret = new_secret()
    stack = Stack(data=tmp_path / "data", env=env)
    try:
        options = {**OPTIONS, "webhook_url": receiver.url, "webhook_secret": secret}
        first = stack.submit(KENNEDY, **options)
        job = stack.finish(first)
        wait_for(lambda: receiver.requests, what="the webhook arrives", timeout_s=60)
        again = stack.submit(KENNEDY, reuse="true", **OPTIONS)
        copied = stack.finish(again)
        same = stack.transcript(again).json() == stack.transcript(first).json()
    finally:
        stack.stop()
    (request,) = receiver.requests
    payload = Webhook(secret).verify(request.body, request.headers)
    assert payload["type"] == "job.completed"
    assert payload["data"] == job
    assert copied["reused_from"] == first
    assert same
