"""The receivers of docs/webhooks.md, word for word, before what really sends webhooks."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from core.signing import new_secret, signed_headers
from models import WebhookEndpoint
from tests.integration.webhooks.test_delivering import deliver
from tests.support import node_sdk
from tests.support.pages import ROOT, find_block
from tests.support.processes import Process, free_port, is_listening, running, wait_for

__all__ = ["deliver"]
PAGE = ROOT / "docs" / "webhooks.md"


class Guide:
    """A receiver as the page has it."""

    def __init__(self, language: str, folder: Path) -> None:
        import sys

        name = {"python": "receiver.py", "js": "receiver.mjs"}[language]
        program = sys.executable if language == "python" else node_sdk.find_program("node")
        assert program is not None, "node is not installed"
        (folder / name).write_text(find_block(PAGE, f"{language} receiver"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.secret = new_secret()
        env = os.environ | {"WEBHOOK_SECRET": self.secret, "PORT": str(self.port)}
        log = folder / "receiver.log"
        self.process = Process(name, [program, folder / name], log=log, env=env)
        wait_for(lambda: is_listening(self.port), what="it listens", process=self.process)

    def lines(self) -> list[str]:
        return [line for line in self.process.output().splitlines() if line.startswith("job.")]


@pytest.fixture(params=["python", "js"])
def guide(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guide]:
    if request.param == "js" and node_sdk.find_program("node") is None and "CI" not in os.environ:
        pytest.skip("node is not installed")
    made = Guide(request.param, tmp_path)
    with running(made.process):
        yield made


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_guides_receiver_takes_what_is_genuine_once_and_nothing_else(guide, world, deliver):
    endpoint_id = world.endpoint(guide.url, secret=guide.secret)
    job_id = world.job()
    world.fail(job_id)
    assert deliver() == 1
    [delivery] = world.deliveries()
    assert (delivery.status, delivery.last_status) == ("delivered", 204)
    assert guide.lines() == [f"job.failed {job_id}"]
    assert world.get(WebhookEndpoint, endpoint_id).failures == 0

    body = '{"type":"job.completed","data":{"id":"会議"}}'.encode()
    now = datetime.now(UTC)

    def post(at: datetime = now, secrets=(guide.secret,), sent: bytes = body, **changes: str):
        headers = signed_headers(secrets, event_id="evt_2", body=body, at=at) | changes
        return httpx.post(guide.url, content=sent, headers=headers, trust_env=False).status_code

    assert post(secrets=(new_secret(), guide.secret)) == 204
    assert post() == 204, "the same event again"
    assert post(secrets=(new_secret(),)) == 400
    assert post(sent=body.replace(b"completed", b"failed")) == 400
    assert post(at=now - timedelta(minutes=6)) == 400
    assert post(at=now + timedelta(minutes=6)) == 400
    assert post(**{"webhook-id": "evt_3"}) == 400
    assert post(**{"webhook-timestamp": "yesterday"}) == 400
    assert httpx.post(guide.url, content=body, trust_env=False).status_code == 400
    assert guide.lines() == [f"job.failed {job_id}", "job.completed 会議"]
