"""An API and a worker over one database, driven by hand."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker

from api.app import create_app
from api.context import ApiContext
from api.hub import EventHub
from api.metrics import Metrics
from tests.integration.api.conftest import make_key
from tests.integration.workers.conftest import make_pipeline
from tests.support.pipeline import MODEL, Pipeline, noise, wav
from workers.expand import expand
from workers.sweep import sweep

OPTIONS = {"language": "en", "vad": False}


@dataclass
class Stack:
    """Everything a batch goes through."""

    pipeline: Pipeline
    context: ApiContext
    client: TestClient

    def step(self) -> bool:
        """Run the oldest message, expansions included."""
        waiting = self.pipeline.messages.waiting
        if waiting and waiting[0][0] == "expand":
            expand(self.pipeline.context, waiting.popleft()[1])
            return True
        return self.pipeline.step()

    def run(self) -> None:
        while self.step():
            pass

    def sweep(self) -> None:
        sweep(self.pipeline.context, self.pipeline.messages)

    def store(self, name: str, data: bytes) -> str:
        key = f"inbox/{name}"
        self.pipeline.context.storage.put(key, data)
        return key

    def store_audio(self, *names: str, seconds: float = 1.5) -> list[str]:
        return [
            self.store(name, wav(noise(seconds, seed=number)))
            for number, name in enumerate(names, start=1)
        ]

    def post(self, lines: list[Any], *, options: dict[str, Any] | None = None, **extra: Any) -> Any:
        body = b"".join(
            (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"
            for line in lines
        )
        headers = {"content-type": "application/x-ndjson"} | extra.pop("headers", {})
        params = {"options": json.dumps(OPTIONS | (options or {}))} | extra
        return self.client.post("/v1/batches", content=body, headers=headers, params=params)

    def submit(self, lines: list[Any], **extra: Any) -> str:
        answer = self.post(lines, **extra)
        assert answer.status_code == 202, answer.text
        batch_id: str = answer.json()["id"]
        return batch_id

    def get(self, batch_id: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/batches/{batch_id}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    def results(self, batch_id: str, what: str = "results") -> list[dict[str, Any]]:
        answer = self.client.get(f"/v1/batches/{batch_id}/{what}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
def stack(sessions, tmp_path, redis_url) -> Iterator[Stack]:
    with make_stack(sessions, tmp_path, redis_url) as stack:
        yield stack


@contextmanager
def make_stack(
    sessions: sessionmaker[Session], tmp_path: Path, redis_url: str, **options: Any
) -> Iterator[Stack]:
    """Provide an API and a worker over `sessions`; `options` are settings."""
    storage_url = (tmp_path / "objects").as_uri()
    pipeline = make_pipeline(
        sessions,
        tmp_path,
        models=f"{MODEL}=/nowhere/checksum",
        storage_url=storage_url,
        **options,
    )
    inner = pipeline.context
    context = ApiContext(
        settings=inner.settings,
        sessions=sessions,
        storage=inner.storage,
        queue=pipeline.messages,
        publisher=pipeline.events,
        hub=EventHub(redis_url),
        metrics=Metrics(),
    )
    headers = {"Authorization": f"Bearer {make_key(context)}"}
    with TestClient(create_app(context), headers=headers) as client:
        yield Stack(pipeline=pipeline, context=context, client=client)


def line(custom_id, key, **options):
    return {"custom_id": custom_id, "media_key": key, **options}


def counts(view):
    return {name: n for name, n in view["counts"].items() if n and name != "total"}


@pytest.fixture
def mixed(stack):
    """Three good lines and one of every kind of bad one."""
    one, two, three = stack.store_audio("1.wav", "2.wav", "3.wav")
    broken = stack.store("broken.wav", b"not audio")
    return [
        line("a", one),
        line("b", two, timestamps="word"),
        b"",
        b"{not json",
        b'["a list"]',
        {"media_key": one},
        line("missing", "inbox/nothing.wav"),
        line("outside", "media/secret"),
        line("bad-option", one, temperature=7),
        line("unknown-option", one, colour="red"),
        line("a", three),
        line("inside", None) | {"media_url": "http://127.0.0.1/a.wav"},
        {"custom_id": "no-media"},
        {"custom_id": "no-upload", "upload_id": "00000000-0000-7000-8000-000000000009"},
        b'{"custom_id": "\xff", "media_key": "inbox/1.wav"}',
        line("nul", one, prompt="a\0b"),
        line("undecodable", broken),
        line("c", three),
    ]
