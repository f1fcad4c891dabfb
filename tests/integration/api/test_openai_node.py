"""OpenAI's interface, called by its Node SDK: unchanged but for the base URL."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from api.app import create_app
from tests.integration.api.conftest import MEDIA, make_context, make_key
from tests.integration.api.fakes import FakeWorker, RecordingQueue
from tests.integration.api.servers import serving
from tests.integration.api.test_openai import TEXT, TOKENS, WORDY
from tests.support import node_sdk

if not node_sdk.is_installed() and "CI" not in os.environ:
    pytest.skip("node and npm are not installed", allow_module_level=True)

SEGMENTS = (replace(TOKENS[0], words=WORDY[0].words), TOKENS[1])
REFUSED = {
    "format": ("BadRequestError", 400, "invalid_option", "response_format"),
    "diarized": ("BadRequestError", 400, "invalid_option", "response_format"),
    "language": ("BadRequestError", 400, "unknown_language", "language"),
    "model": ("NotFoundError", 404, "model_not_found", "model"),
    "no_audio": ("BadRequestError", 400, "media_undecodable", None),
    "key": ("AuthenticationError", 401, "unauthenticated", None),
}


@pytest.fixture
def got(sqlite_sessions, settings, redis_url) -> Iterator[dict[str, Any]]:
    """Everything the SDK gets, in one run: starting node costs more than all its calls."""
    node_sdk.install()
    queue = RecordingQueue()
    context = make_context(sqlite_sessions, settings(redis_url=redis_url), queue)
    with FakeWorker(context, queue) as worker, serving(create_app(context)) as url:
        worker.segments = SEGMENTS
        yield node_sdk.call_sdk(url, make_key(context), MEDIA / "wav_mulaw_8k.wav")


def test_every_call_of_the_node_sdk_is_answered_as_openai_would(got: dict[str, Any]):
    for name in ("default", "from_disk", "json", "chunked", "vad", "translation"):
        assert got[name]["text"] == TEXT
        assert got[name]["usage"] == {"type": "duration", "seconds": 2.5}
    assert got["text"] == f"{TEXT}\n"
    assert got["srt"].startswith("1\n00:00:00,000 --> 00:00:01,000\nHello there.\n\n2\n")
    assert got["vtt"].startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nHello there.\n")

    for name, has_segments, has_words in (
        ("verbose", True, False), ("words", False, True), ("both", True, True),
        ("translation_verbose", True, False),
    ):  # fmt: skip
        answer = got[name]
        assert (answer["language"], answer["duration"], answer["text"]) == ("english", 2.5, TEXT)
        assert ("segments" in answer, "words" in answer) == (has_segments, has_words)
    assert got["verbose"]["task"] == "transcribe"
    assert [word["word"] for word in got["both"]["words"]] == ["Hello", "there."]

    assert "logprobs" not in got["default"]
    logprobs = got["logprobs"]["logprobs"]
    assert "".join(token["token"] for token in logprobs) == TEXT
    assert logprobs[0] == {"token": "Hello", "bytes": list(b"Hello"), "logprob": -0.1}
    for name in ("stream", "stream_logprobs"):
        *events, done = got[name]
        deltas = [event for event in events if event["type"] == "transcript.text.delta"]
        assert "".join(event["delta"] for event in deltas) == done["text"] == TEXT
        assert done["type"] == "transcript.text.done"
        assert all(("logprobs" in event) is (name == "stream_logprobs") for event in deltas)

    assert [model["id"] for model in got["models"]] == ["whisper-base"]
    assert got["model"]["object"] == "model"
    for name, (kind, status, code, param) in REFUSED.items():
        error = got["errors"][name]
        assert (error["name"], error["status"], error["code"]) == (kind, status, code), name
        assert error.get("param") == param
        assert error["message"]
        assert error["type"]
