"""Ranges, cursors, deltas, error bodies: the API's pure parts."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cursors import decode_cursor, encode_cursor
from api.openai.rendering import DeltaWriter
from api.problems import JobFailed, describe, openai_body, respond
from api.ranges import parse_range
from api.routes.transcripts import attachment
from core import errors
from core.transcript import Segment, Transcript, join_texts


@given(st.text(max_size=40), st.integers(0, 2000))
def test_any_range_header_gives_a_part_of_the_object(header: str, size: int):
    for candidate in (header, f"bytes={header}", f"bytes={size}-{len(header)}"):
        wanted = parse_range(candidate, size)
        assert wanted is None or (wanted[0] >= 0 and wanted[1] <= size)


def test_cursors_come_back():
    place = (datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), UUID(int=7))
    assert decode_cursor(encode_cursor(*place)) == place


@given(st.text(max_size=60))
def test_no_cursor_of_others_crashes(text: str):
    try:
        created_at, _row_id = decode_cursor(text)
    except errors.InvalidOption:
        return
    assert created_at.tzinfo is not None


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_file_name_is_a_safe_header(name: str):
    header = attachment(name)
    assert header.isascii()
    assert header.isprintable()


TEXTS = st.lists(
    st.text(st.sampled_from(["a", "b", "日", "本", " ", "。", "é"]), min_size=1, max_size=6).map(
        str.strip
    ),
    max_size=8,
)


def transcript(texts: list[str]) -> Transcript:
    segments = tuple(Segment(text=text, start_ms=0, end_ms=1) for text in texts)
    return Transcript(segments=segments, language="en", duration_ms=1)


@given(TEXTS, st.data())
def test_deltas_join_to_the_final_text_however_much_was_told_before(texts, data):
    """Workers may publish deltas, segments, both, or nothing before the end."""
    writer = DeltaWriter()
    final = transcript(texts)
    events: list[dict] = []
    told = ""
    for index, text in enumerate(texts):
        until = join_texts(texts[: index + 1])
        if data.draw(st.booleans(), label="as deltas"):
            cut = data.draw(st.integers(len(told), max(len(told), len(until))))
            if until.startswith(told) and cut > len(told):
                events += writer.on_delta(until[len(told) : cut])
                told = until[:cut]
        if data.draw(st.booleans(), label="as a segment") or data.draw(st.booleans()):
            events += writer.on_segment({"start": 0, "end": 1, "text": text})
            told = until
        else:
            break
    events += writer.on_end(final)
    deltas = "".join(e["delta"] for e in events if e["type"] == "transcript.text.delta")
    assert deltas == final.text
    assert [e["type"] for e in events].count("transcript.text.done") == 1
    assert events[-1]["text"] == final.text


@pytest.mark.parametrize(
    ("exc", "status", "code"),
    [
        (errors.MediaEmpty("x"), 400, "media_empty"),
        (errors.MediaUndecodable("x"), 400, "media_undecodable"),
        (errors.MediaHasNoAudio("x"), 400, "media_has_no_audio"),
        (errors.MediaTooLarge("x"), 413, "media_too_large"),
        (errors.MediaTooLong("x"), 400, "media_too_long"),
        (errors.UnknownLanguage("x", param="language"), 400, "unknown_language"),
        (errors.JobNotFound("x"), 404, "job_not_found"),
        (errors.InvalidTransition("x"), 409, "invalid_transition"),
        (errors.StorageUnavailable("x"), 503, "storage_unavailable"),
        (errors.AdapterFailure("x"), 500, "adapter_failure"),
        (JobFailed("media_gone", "x"), 400, "media_gone"),
        (JobFailed("worker_lost", "x"), 500, "worker_lost"),
        (JobFailed("of_another_version", "x"), 500, "of_another_version"),
        (ZeroDivisionError("secret"), 500, "internal_error"),
    ],
)
def test_every_error_has_a_status_and_a_code(exc: Exception, status: int, code: str):
    problem = describe(exc)
    assert (problem.status, problem.code) == (status, code)
    assert "secret" not in problem.detail
    assert openai_body(problem)["error"]["code"] == code


def test_the_path_decides_the_dialect():
    problem = describe(errors.InvalidOption("no", param="language"))
    ours = respond(problem, path="/v1/jobs", request_id="r")
    theirs = respond(problem, path="/v1/audio/transcriptions", request_id="r")
    assert ours.headers["content-type"] == "application/problem+json"
    assert theirs.headers["content-type"] == "application/json"
    assert b'"error"' in theirs.body
