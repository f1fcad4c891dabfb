"""The main job through every door: HTTP, the OpenAI SDK, the command line."""

import re
from pathlib import Path

import openai
import pytest

from tests.e2e.conftest import KENNEDY, SAMPLES
from tests.support.stack import Stack, json_lines, run_command

SENTENCE = "ask not what your country can do for you"


def test_an_upload_becomes_a_transcript_in_every_format(stack: Stack) -> None:
    job_id = stack.submit(KENNEDY, reference="speech 1", metadata='{"year": 1961}')

    job = stack.finish(job_id)

    assert job["language"] == "en"
    assert job["duration_s"] == pytest.approx(11.0, abs=0.01)
    assert job["progress"]["percent"] == 100
    assert job["progress"]["windows_done"] == job["progress"]["windows_total"] >= 1
    assert (job["reference"], job["metadata"]) == ("speech 1", {"year": 1961})
    as_json = stack.transcript(job_id).json()
    assert SENTENCE in as_json["text"]
    segments = as_json["segments"]
    assert all(0 <= s["start"] < s["end"] <= 11.1 for s in segments)
    assert [s["start"] for s in segments] == sorted(s["start"] for s in segments)
    assert stack.transcript(job_id, "text").text.strip() == as_json["text"]
    assert len(re.findall(r"\d\d:\d\d:\d\d,\d{3} --> ", stack.transcript(job_id, "srt").text)) >= 2
    assert stack.transcript(job_id, "vtt").text.startswith("WEBVTT\n")
    assert stack.transcript(job_id, "tsv").text.startswith("start\tend\ttext\n")
    verbose = stack.transcript(job_id, "verbose_json").json()
    assert verbose["text"] == as_json["text"]
    assert all(-2 < s["avg_logprob"] < 0 for s in verbose["segments"])


def test_the_media_can_be_fetched_back(stack: Stack) -> None:
    job_id = stack.submit(KENNEDY)

    answer = stack.client.get(f"/v1/jobs/{job_id}/media", follow_redirects=False)
    if answer.is_redirect:  # to a presigned URL, which needs no key of ours
        import httpx

        answer = httpx.get(answer.headers["location"], trust_env=False)

    assert answer.status_code == 200
    assert answer.content == KENNEDY.read_bytes()


def test_what_is_no_audio_fails_with_a_reason(stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "letter.mp3"
    path.write_text("Dear reader, this is no music. " * 100)

    with path.open("rb") as handle:
        answer = stack.client.post("/v1/jobs", files={"file": handle})

    if answer.status_code == 202:
        job = stack.finish(answer.json()["id"], status="failed")
        assert job["error"]["code"] == "media_undecodable"
    else:
        assert (answer.status_code, answer.json()["code"]) == (400, "media_undecodable")


def test_a_stranger_gets_nothing(stack: Stack) -> None:
    job_id = stack.submit(KENNEDY)
    stranger = {"Authorization": "Bearer sk-wrong"}

    assert stack.client.get(f"/v1/jobs/{job_id}", headers=stranger).status_code == 401


def test_the_openai_sdk_works_with_only_its_base_url_changed(stack: Stack) -> None:
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.key, max_retries=0) as client:
        with KENNEDY.open("rb") as handle:
            answer = client.audio.transcriptions.create(
                model="whisper-base", file=handle, response_format="verbose_json"
            )
        models = [model.id for model in client.models.list()]

    assert SENTENCE in answer.text
    assert answer.segments
    assert "whisper-base" in models


def test_the_command_line_uses_the_stack_that_is_up(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    (folder / "2026 März").mkdir(parents=True)
    speech = folder / "2026 März" / "Grüße 日本.flac"
    speech.write_bytes(KENNEDY.read_bytes())
    (folder / "empty.wav").write_bytes(b"")
    (folder / "letter.mp3").write_text("Dear reader, this is no music. " * 100)
    (folder / "readme.txt").write_text("not a recording")

    command = ("transcribe", folder, "--data", stack.data, "--format", "txt,srt", "--jsonl")
    first = run_command(*command, env=stack.env)

    assert first.returncode == 1, first.stderr
    results = {Path(line["path"]).name: line for line in json_lines(first.stdout)}
    assert results.keys() == {"Grüße 日本.flac", "empty.wav", "letter.mp3"}
    assert results["empty.wav"]["error"]["code"] == "media_empty"
    assert results["letter.mp3"]["error"]["code"] == "media_undecodable"
    assert results["Grüße 日本.flac"]["status"] == "completed"
    assert "1 completed, 0 skipped, 2 failed" in first.stderr
    assert SENTENCE in speech.with_suffix(".txt").read_text()
    assert " --> " in speech.with_suffix(".srt").read_text()
    written = speech.with_suffix(".txt").stat().st_mtime_ns

    again = run_command(*command, env=stack.env)

    assert again.returncode == 1
    assert "0 completed, 1 skipped, 2 failed" in again.stderr
    assert speech.with_suffix(".txt").stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["es_persuasion.ogg", "it_asterisk.mp3"])
def test_other_languages_and_containers_are_recognised(stack: Stack, name: str) -> None:
    job = stack.finish(stack.submit(SAMPLES / name))

    assert job["language"] == name[:2]
