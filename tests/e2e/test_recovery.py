"""Whatever is killed, the work completes by itself, once, and nothing that was done is redone."""

from itertools import pairwise
from pathlib import Path

import pytest
import redis

from models import JobStage, Window
from tests.e2e.conftest import KENNEDY, NUM_WINDOWS
from tests.support.processes import wait_for
from tests.support.stack import JOB_S, Stack

PHRASE = "ask not what your country"


def check_complete(stack: Stack, job_id: str) -> str:
    """Fail unless every window was recognised once and every repetition is in its place."""
    windows = stack.windows(job_id)
    assert [w.index for w in windows] == list(range(NUM_WINDOWS))
    assert all(w.status == "done" for w in windows)
    for before, after in pairwise(windows):
        assert before.start_sample + before.num_samples <= after.start_sample
    transcript = stack.transcript(job_id).json()
    segments = transcript["segments"]
    assert [s["start"] for s in segments] == sorted(s["start"] for s in segments)
    assert len({(s["start"], s["text"]) for s in segments}) == len(segments)
    text: str = transcript["text"]
    assert text.lower().count(PHRASE) == NUM_WINDOWS
    return text


def check_untouched(stack: Stack, job_id: str, done: list[Window]) -> None:
    """Fail if a window that was done has been recognised again."""
    now = {w.index: w for w in stack.windows(job_id)}
    for window in done:
        assert now[window.index].attempt == window.attempt
        assert now[window.index].finished_at == window.finished_at


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, str]:
    """The long recording's text by whoever recognised it first."""
    return {}


def agrees(undisturbed: dict[str, str], text: str) -> bool:
    return undisturbed.setdefault("text", text) == text


def test_nothing_happens_to_an_undisturbed_job(
    stack: Stack, long_recording: Path, undisturbed: dict[str, str]
) -> None:
    job_id = stack.submit(long_recording)

    stack.finish(job_id)

    text = check_complete(stack, job_id)
    assert agrees(undisturbed, text)
    assert {w.failures for w in stack.windows(job_id)} == {0}
    # The last sentence of each window: a model that stops early must be asked to go on.
    assert text.lower().count("ill-disposed") == NUM_WINDOWS


def test_a_killed_recogniser_is_replaced_and_resumes(
    stack: Stack, long_recording: Path, undisturbed: dict[str, str]
) -> None:
    job_id = stack.submit(long_recording)
    done = stack.wait_for_windows(job_id, at_least=2)

    stack.worker("asr-whisper").kill()

    stack.finish(job_id)
    assert agrees(undisturbed, check_complete(stack, job_id))
    check_untouched(stack, job_id, done)
    assert max(w.failures for w in stack.windows(job_id)) == 1  # what was in its hands


def test_a_killed_decoder_is_replaced_and_prepares_again(
    stack: Stack, quiet_recording: Path
) -> None:
    job_id = stack.submit(quiet_recording)
    wait_for(
        lambda: stack.job(job_id).lease_expires_at is not None,
        what="somebody prepares the job",
        process=stack.process,
    )
    assert stack.job(job_id).stage == JobStage.PREPARE
    attempt = stack.job(job_id).attempt

    stack.worker("media").kill()

    stack.finish(job_id)
    assert stack.job(job_id).attempt > attempt
    segments = stack.transcript(job_id).json()["segments"]
    assert PHRASE in " ".join(s["text"] for s in segments)
    assert min(s["start"] for s in segments) >= 30 * 60 - 1


def test_losing_every_message_loses_no_work(
    stack: Stack, long_recording: Path, undisturbed: dict[str, str]
) -> None:
    running = stack.submit(long_recording)
    done = stack.wait_for_windows(running, at_least=1)

    waiting = [stack.submit(KENNEDY) for _ in range(3)]
    with redis.Redis.from_url(stack.redis_url) as client:
        client.flushall()

    for job_id in waiting:
        stack.finish(job_id)
        assert PHRASE in stack.transcript(job_id).json()["text"]
    stack.finish(running)
    assert agrees(undisturbed, check_complete(stack, running))
    check_untouched(stack, running, done)


def test_redis_may_crash_and_come_back(
    stack: Stack, long_recording: Path, undisturbed: dict[str, str]
) -> None:
    running = stack.submit(long_recording)
    done = stack.wait_for_windows(running, at_least=1)

    stack.restart_redis()
    later = stack.submit(KENNEDY)

    stack.finish(running)
    assert agrees(undisturbed, check_complete(stack, running))
    check_untouched(stack, running, done)
    stack.finish(later)


def test_the_api_may_be_killed(stack: Stack) -> None:
    job_id = stack.submit(KENNEDY)

    stack.child("cli.main", "api").kill()

    def answers() -> bool:
        import httpx

        try:
            return stack.client.get("/health/live").status_code == 200
        except httpx.TransportError:
            return False

    wait_for(answers, what="the API answers again", timeout_s=JOB_S, process=stack.process)
    stack.finish(job_id)
