"""OpenAI's interface, called by its own SDK over a real socket."""

import json
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import httpx
import openai
import pytest
from openai import OpenAI

from api.context import ApiContext
from core.db import read_session
from core.transcript import Segment, TokenLogprob, Word
from models import Job, JobStatus
from tests.integration.api.conftest import MEDIA, SPEECH
from tests.integration.api.fakes import HELLO, FakeWorker
from tests.integration.api.servers import Server
from tests.support.processes import wait_for

TEXT = "Hello there. How are you?"
WORDY = (
    Segment(
        text="Hello there.",
        start_ms=0,
        end_ms=1000,
        words=(
            Word(text="Hello", start_ms=0, end_ms=400, probability=0.9),
            Word(text="there.", start_ms=450, end_ms=1000, probability=0.8),
        ),
        avg_logprob=-0.2,
        compression_ratio=1.0,
        no_speech_prob=0.01,
        tokens=(5, 6),
    ),
)


@pytest.fixture
def sdk(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as sdk:
        yield sdk


def file() -> tuple[str, bytes]:
    return ("speech.wav", SPEECH.read_bytes())


def job_of(context: ApiContext, job_id: UUID) -> Job:
    with read_session(context.sessions) as session:
        return session.get_one(Job, job_id)


def test_json_is_the_default(sdk: OpenAI, worker: FakeWorker, sqlite_context: ApiContext):
    answer = sdk.audio.transcriptions.create(model="whisper-1", file=file())
    assert answer.text == TEXT
    assert answer.usage.model_dump() == {"type": "duration", "seconds": 2.5}
    job = job_of(sqlite_context, worker.job_ids[0])
    assert (job.priority, job.model) == (0, "whisper-base")
    assert job.delete_at is not None


@pytest.mark.parametrize(
    ("response_format", "expected", "content_type"),
    [
        ("text", f"{TEXT}\n", "text/plain; charset=utf-8"),
        (
            "srt",
            (
                "1\n00:00:00,000 --> 00:00:01,000\nHello there.\n\n"
                "2\n00:00:01,200 --> 00:00:02,500\nHow are you?\n"
            ),
            "text/plain; charset=utf-8",
        ),
        (
            "vtt",
            (
                "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nHello there.\n\n"
                "00:00:01.200 --> 00:00:02.500\nHow are you?\n"
            ),
            "text/vtt; charset=utf-8",
        ),
    ],
)
def test_text_formats_are_bare_bodies(
    sdk: OpenAI, worker: FakeWorker, response_format, expected, content_type
):
    raw = sdk.audio.transcriptions.with_raw_response.create(
        model="whisper-1", file=file(), response_format=response_format
    )
    assert raw.http_response.text == expected
    assert raw.headers["content-type"] == content_type
    assert str(raw.parse()) == expected


@pytest.mark.parametrize("response_format", ["json", "verbose_json", "text", "srt"])
def test_warnings_are_told_in_every_format(sdk: OpenAI, worker: FakeWorker, response_format):
    worker.warnings = ("part_not_understood", "words_no_aligner")
    raw = sdk.audio.transcriptions.with_raw_response.create(
        model="whisper-1", file=file(), response_format=response_format
    )
    assert raw.headers["x-scriptorium-warnings"] == "part_not_understood, words_no_aligner"
    if "json" in response_format:
        assert raw.parse().model_extra["warnings"] == list(worker.warnings)


def test_a_stream_tells_warnings_at_its_end(sdk: OpenAI, worker: FakeWorker):
    worker.warnings = ("part_not_understood",)
    events = sdk.audio.transcriptions.create(model="whisper-1", file=file(), stream=True)
    done = [*events][-1]
    assert (done.type, done.text) == ("transcript.text.done", TEXT)
    assert done.model_extra["warnings"] == ["part_not_understood"]


@pytest.mark.parametrize(
    ("granularities", "has_segments", "has_words"),
    [(None, True, False), (["word"], False, True), (["segment"], True, False),
     (["word", "segment"], True, True)],
)  # fmt: skip
def test_granularities_choose_words_and_segments(  # noqa: PLR0917 - fixtures
    sdk: OpenAI, worker: FakeWorker, sqlite_context, granularities, has_segments, has_words
):
    worker.segments = WORDY
    extra = {} if granularities is None else {"timestamp_granularities": granularities}
    answer = sdk.audio.transcriptions.create(
        model="whisper-1", file=file(), response_format="verbose_json", **extra
    )
    assert (answer.task, answer.language, answer.duration) == ("transcribe", "english", 2.5)
    assert (answer.segments is not None, answer.words is not None) == (has_segments, has_words)
    if has_segments:
        assert answer.segments[0].model_dump() == {
            "id": 0, "seek": 0, "start": 0.0, "end": 1.0, "text": "Hello there.",
            "tokens": [5, 6], "temperature": 0.0, "avg_logprob": -0.2, "compression_ratio": 1.0,
            "no_speech_prob": 0.01,
        }  # fmt: skip
    if has_words:
        assert answer.words[1].model_dump() == {"word": "there.", "start": 0.45, "end": 1.0}
    wanted = job_of(sqlite_context, worker.job_ids[0]).options["timestamps"]
    assert wanted == ("word" if has_words else "segment")


def test_granularities_without_brackets_mean_the_same(server: Server, worker: FakeWorker):
    worker.segments = WORDY
    response = httpx.post(
        f"{server.url}/v1/audio/transcriptions",
        data={"response_format": "verbose_json", "timestamp_granularities": ["word", "segment"]},
        files={"file": file()},
        headers=server.headers,
        timeout=60,
    )
    assert {"words", "segments"} <= response.json().keys()


def test_language_prompt_and_temperature_reach_the_job(
    sdk: OpenAI, worker: FakeWorker, sqlite_context: ApiContext
):
    sdk.audio.transcriptions.create(
        model="gpt-4o-transcribe",
        file=file(),
        language="en",
        prompt="Zürich, Ten of clubs",
        temperature=0.2,
        chunking_strategy="auto",
        extra_body={"keywords": ["Kubernetes", "Marvin"]},
    )
    options = job_of(sqlite_context, worker.job_ids[0]).options
    assert options["language"] == "en"
    assert options["prompt"] == "Zürich, Ten of clubs Kubernetes, Marvin"
    assert options["temperature"] == 0.2


def test_temperature_zero_means_greedy_with_fallback(
    sdk: OpenAI, worker: FakeWorker, sqlite_context: ApiContext
):
    sdk.audio.transcriptions.create(model="whisper-1", file=file(), temperature=0)
    assert job_of(sqlite_context, worker.job_ids[0]).options["temperature"] is None


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # by the SDK, of its own
def test_translations_translate(sdk: OpenAI, worker: FakeWorker, sqlite_context: ApiContext):
    answer = sdk.audio.translations.create(model="whisper-1", file=file())
    assert answer.text == TEXT
    assert job_of(sqlite_context, worker.job_ids[0]).options["task"] == "translate"


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # by the SDK, of its own
def test_the_language_of_a_translation_is_always_english(sdk: OpenAI, worker: FakeWorker):
    worker.language = "es"  # of what was spoken
    answer = sdk.audio.translations.create(
        model="whisper-1", file=file(), response_format="verbose_json"
    )
    assert answer.language == "english"


REFUSED = [
    ({"response_format": "docx"}, "response_format"),
    ({"response_format": "diarized_json"}, "response_format"),
    ({"language": "xx"}, "language"),
    ({"temperature": 5}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "nan"}, "temperature"),
    ({"timestamp_granularities": ["words"], "response_format": "verbose_json"},
     "timestamp_granularities[]"),
    ({"timestamp_granularities": ["word"]}, "timestamp_granularities[]"),
    ({"include": ["logprobs"], "response_format": "verbose_json"}, "include[]"),
    ({"include": ["logprobs"], "response_format": "text"}, "include[]"),
    ({"include": ["usage"]}, "include[]"),
    ({"chunking_strategy": {"type": "server_vad", "threshold": 0.9}},
     "chunking_strategy[threshold]"),
    ({"chunking_strategy": {"type": "magic"}}, "chunking_strategy[type]"),
    ({"stream": True, "response_format": "srt"}, "response_format"),
    ({"extra_body": {"vad_filter": True}}, "vad_filter"),
    ({"extra_body": {"hotwords": ["a", "b"]}}, "hotwords[]"),
    ({"extra_body": {"languages": ["en", "fr"]}}, "languages[]"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(
    sdk: OpenAI, sqlite_context: ApiContext, fields, param
):
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.audio.transcriptions.create(model="whisper-1", file=file(), **fields)
    assert refused.value.param == param
    assert refused.value.body.keys() == {"message", "type", "param", "code"}
    assert list(sqlite_context.storage.list("")) == []


def test_server_vad_with_openais_defaults_is_what_happens_anyway(sdk: OpenAI, worker: FakeWorker):
    strategy = {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 200}
    answer = sdk.audio.transcriptions.create(
        model="whisper-1", file=file(), chunking_strategy=strategy
    )
    assert answer.text == TEXT


def test_translations_take_no_language(server: Server):
    response = httpx.post(
        f"{server.url}/v1/audio/translations",
        data={"model": "whisper-1", "language": "en"},
        files={"file": file()},
        headers=server.headers,
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, "language")


@pytest.mark.parametrize("name", ["text_renamed.mp3", "mp4_video_no_audio.mp4"])
def test_what_is_no_audio_is_a_bad_request(sdk: OpenAI, name):
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.audio.transcriptions.create(model="whisper-1", file=MEDIA / name)
    assert refused.value.code.startswith("media_")


def test_errors_have_openais_shapes(server: Server, sdk: OpenAI):
    url = f"{server.url}/v1/audio/transcriptions"
    no_file = httpx.post(url, data={"model": "x"}, headers=server.headers)
    assert no_file.status_code == 400
    no_file = httpx.post(url, files={"model": (None, "whisper-1")}, headers=server.headers)
    assert (no_file.status_code, no_file.json()["error"]["param"]) == (400, "file")
    text = httpx.post(url, files={"file": (None, b"\xff\xfe")}, headers=server.headers)
    assert (text.status_code, text.json()["error"]["param"]) == (400, "file")
    assert "filename" in text.json()["error"]["message"]
    with pytest.raises(openai.AuthenticationError):
        sdk.with_options(api_key="sk-wrong").models.list()
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.audio.transcriptions.create(model="whisper-99", file=file())
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")


def test_models_are_listed_and_found(sdk: OpenAI):
    assert [model.id for model in sdk.models.list()] == ["whisper-base"]
    assert sdk.models.retrieve("whisper-base").object == "model"
    assert sdk.models.retrieve("whisper-1").id == "whisper-base"
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("openai/none")


def test_a_failed_job_is_an_error_of_its_own_code(sdk: OpenAI, worker: FakeWorker):
    worker.failure = ("media_gone", "The object vanished.")
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.audio.transcriptions.create(model="whisper-1", file=file())
    assert refused.value.code == "media_gone"
    worker.failure = ("unknown_language", "whisper-base does not know 'yue'.")
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.audio.transcriptions.create(model="whisper-1", file=file(), language="yue")
    assert (refused.value.code, refused.value.param) == ("unknown_language", "language")
    worker.failure = ("worker_lost", "Again and again.")
    with pytest.raises(openai.InternalServerError):
        sdk.audio.transcriptions.create(model="whisper-1", file=file())


def spelt(*tokens: tuple[str, float]) -> tuple[TokenLogprob, ...]:
    return tuple(TokenLogprob(utf8=tuple(text.encode()), logprob=p) for text, p in tokens)


TOKENS = (
    replace(HELLO[0], token_logprobs=spelt((" Hello", -0.1), (" there", -0.2), (".", -0.3))),
    replace(HELLO[1], token_logprobs=spelt((" How", -0.4), (" are", -0.5), (" you?", -0.6))),
)


def test_logprobs_are_those_of_the_texts_tokens(
    sdk: OpenAI, worker: FakeWorker, sqlite_context: ApiContext
):
    worker.segments = TOKENS
    answer = sdk.audio.transcriptions.create(
        model="gpt-4o-transcribe", file=file(), include=["logprobs"]
    )
    assert [(each.token, each.logprob) for each in answer.logprobs] == [
        ("Hello", -0.1), (" there", -0.2), (".", -0.3), (" How", -0.4), (" are", -0.5),
        (" you?", -0.6),
    ]  # fmt: skip
    assert b"".join(bytes(map(int, each.bytes)) for each in answer.logprobs).decode() == answer.text
    assert job_of(sqlite_context, worker.job_ids[0]).options["logprobs"] is True
    silent = sdk.audio.transcriptions.create(model="gpt-4o-transcribe", file=file())
    assert silent.logprobs is None


def test_a_streams_deltas_bring_the_logprobs_of_their_own_tokens(sdk: OpenAI, worker: FakeWorker):
    worker.segments = TOKENS
    *events, done = sdk.audio.transcriptions.create(
        model="gpt-4o-transcribe", file=file(), include=["logprobs"], stream=True
    )
    deltas = [event for event in events if event.type == "transcript.text.delta"]
    assert [event.delta for event in deltas] == ["Hello there.", " How are you?"]
    for event in deltas:
        assert "".join(each.token for each in event.logprobs) == event.delta
    told = [each.model_dump() for event in deltas for each in event.logprobs]
    assert [each.model_dump() for each in done.logprobs] == told
    assert [each.logprob for each in done.logprobs] == [-0.1, -0.2, -0.3, -0.4, -0.5, -0.6]


def test_silence_is_an_empty_text(sdk: OpenAI, worker: FakeWorker):
    worker.segments = ()
    assert sdk.audio.transcriptions.create(model="whisper-1", file=file()).text == ""


@pytest.mark.parametrize(
    "segments",
    [
        HELLO,
        (),
        tuple(
            Segment(text=text, start_ms=i * 100, end_ms=i * 100 + 90)
            for i, text in enumerate(["今日は", "いい天気です。", "Yes.", "ไทย", "ภาษา"])
        ),
    ],
)
def test_a_streams_deltas_join_to_the_final_text(sdk: OpenAI, worker: FakeWorker, segments):
    worker.segments = segments
    events = list(sdk.audio.transcriptions.create(model="whisper-1", file=file(), stream=True))
    final = [event for event in events if event.type == "transcript.text.done"]
    assert len(final) == 1
    assert events[-1] is final[0]
    joined = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    assert joined == final[0].text
    told = [event.text for event in events if event.type == "transcript.text.segment"]
    assert told == [segment.text for segment in segments]


def test_deltas_arrive_before_the_job_ends(
    sdk: OpenAI, worker: FakeWorker, sqlite_context: ApiContext
):
    worker.gate.clear()
    with sdk.audio.transcriptions.create(model="whisper-1", file=file(), stream=True) as stream:
        first = next(iter(stream))
        assert (first.type, first.delta) == ("transcript.text.delta", "Hello there.")
        assert job_of(sqlite_context, worker.job_ids[0]).status == JobStatus.RUNNING
        worker.gate.set()
        assert [event.type for event in stream][-1] == "transcript.text.done"


def test_a_stream_that_fails_says_so_to_the_sdk(sdk: OpenAI, worker: FakeWorker, monkeypatch):
    worker.gate.clear()
    stream = sdk.audio.transcriptions.create(model="whisper-1", file=file(), stream=True)
    next(iter(stream))
    from tests.integration.api import fakes

    fakes.fail(worker._context, worker.job_ids[0], "worker_lost", "Again and again.")
    with pytest.raises(openai.APIError, match="Again and again"):
        list(stream)


@pytest.mark.parametrize("is_stream", [False, True])
def test_hanging_up_cancels_the_job(
    server: Server, worker: FakeWorker, sqlite_context: ApiContext, is_stream
):
    worker.gate.clear()
    data = {"model": "whisper-1"} | ({"stream": "true"} if is_stream else {})
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{server.url}/v1/audio/transcriptions",
            data=data,
            files={"file": file()},
            headers=server.headers,
            timeout=httpx.Timeout(30, read=4),
        )
    wait_for(
        lambda: (
            worker.job_ids
            and job_of(sqlite_context, worker.job_ids[0]).status == JobStatus.CANCELLED
        ),
        what="the job is cancelled",
    )


def test_a_queue_that_does_not_move_is_503_and_leaves_nothing_waiting(
    sqlite_sessions, settings, queue, redis_url
):
    from api.app import create_app
    from tests.integration.api.conftest import make_context, make_key
    from tests.integration.api.servers import serving

    impatient = settings(redis_url=redis_url, sync_start_s=0.5)
    context = make_context(sqlite_sessions, impatient, queue)
    with serving(create_app(context)) as url:
        for stream in ("false", "true"):
            response = httpx.post(
                f"{url}/v1/audio/transcriptions",
                data={"model": "whisper-1", "stream": stream},
                files={"file": file()},
                headers={"Authorization": f"Bearer {make_key(context)}"},
                timeout=60,
            )
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) > 0
            assert response.json()["error"]["type"] == "server_error"
            assert job_of(context, queue.prepared.get_nowait()).status == JobStatus.CANCELLED


def test_the_stream_is_plain_server_sent_events(server: Server, worker: FakeWorker):
    with httpx.stream(
        "POST",
        f"{server.url}/v1/audio/transcriptions",
        data={"model": "whisper-1", "stream": "true"},
        files={"file": file()},
        headers=server.headers,
        timeout=60,
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    assert json.loads(lines[-1].removeprefix("data: "))["type"] == "transcript.text.done"
