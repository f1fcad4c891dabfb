"""Live audio through real processes, some of which are killed in the middle."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import soundfile

from tests.support.live import live_client
from tests.support.processes import wait_for
from tests.support.stack import START_S, Stack, environment, run_command

DATA = Path(__file__).parents[1] / "data"
CLIP = DATA / "clips" / "qwen3" / "03_english_6s.flac"
WORDS = "in purple water close four october"
INPUT = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack with a checkpoint that hears and is loaded in a second."""
    env = environment(
        SCRIPTORIUM_MODELS=f"tiny={DATA / 'checkpoints' / 'tiny-qwen3-asr'}",
        SCRIPTORIUM_LIVE_LEASE_S="8",
        SCRIPTORIUM_LIVE_START_S=str(START_S),
        SCRIPTORIUM_THREADS="1",
    )
    stack = Stack(data=tmp_path / "data", env=env)
    try:
        yield stack
    finally:
        stack.stop()
    assert stack.leftovers() == []


def test_whatever_is_killed_is_reported_and_the_next_session_works(stack: Stack) -> None:
    samples, _ = soundfile.read(CLIP, dtype="float32")
    kept = redis.Redis.from_url(stack.redis_url)

    with live_client(stack.url, stack.key) as client:
        client.update(**INPUT)
        client.append(samples)
        client.wait_for("conversation.item.input_audio_transcription.delta")
        stack.worker("asr-qwen3_asr").kill()
        error, code = client.wait_for_end()
    assert (error["error"]["code"], code) == ("worker_lost", 1011)

    # The supervisor starts another worker; the session waits for it.
    env = {**stack.env, "SCRIPTORIUM_API_KEY": stack.key or ""}
    done = run_command("listen", "--fast", CLIP, "--server", stack.url, env=env, timeout_s=START_S)
    assert (done.returncode, done.stdout.strip()) == (0, WORDS), done.stderr

    with live_client(stack.url, stack.key) as client:
        client.update(**INPUT)
        client.append(samples)
        client.wait_for("conversation.item.input_audio_transcription.delta")
        stack.child("api", "--fd").kill()
        client.wait_for_end()
    wait_for(lambda: not kept.keys("live:*"), what="nothing is left of any session")
    kept.close()
    stack.remember_family()
