"""The tiny checkpoint hears live sessions, from OpenAI's client to the model and back."""

import asyncio
import base64
import threading
from collections.abc import Callable, Iterator

import jiwer
import numpy as np
import pytest
from openai import AsyncOpenAI

from api.app import create_app
from core.db import make_engine, make_sessions
from core.settings import Settings
from tests.adapters.qwen3.conftest import ASR
from tests.integration.api.conftest import make_context, make_key
from tests.integration.api.fakes import RecordingQueue
from tests.integration.api.servers import Server, serving
from workers.catalog import FolderCatalog
from workers.device import DeviceWatch
from workers.gate import ModelGate
from workers.live.host import LiveHost
from workers.loaded import LoadedAdapters


@pytest.fixture
def server(settings: Callable[..., Settings], sqlite_url: str, redis_url: str) -> Iterator[Server]:
    """A server and the live half of its worker."""
    chosen = settings(redis_url=redis_url, models=f"tiny={ASR}", device="cpu", threads=1)
    engine = make_engine(sqlite_url)
    context = make_context(make_sessions(engine), chosen, RecordingQueue())
    host = LiveHost(
        chosen,
        models=["tiny"],
        name="worker",
        loaded=LoadedAdapters(FolderCatalog(chosen)),
        gate=ModelGate(),
        device=DeviceWatch("cpu", on_loss=lambda: None),
        stopping=threading.Event(),
    )
    host.start()
    try:
        with serving(create_app(context)) as url:
            yield Server(url=url, key=make_key(context))
    finally:
        host.stop()
        engine.dispose()


async def dictate(server: Server, samples: np.ndarray, language: str | None) -> tuple[str, str]:
    """Speak a turn that the client ends; return the deltas joined, and the whole transcript."""
    pcm = np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    audio = {
        "format": {"type": "audio/pcm", "rate": 16_000},
        "transcription": {"model": "tiny", "language": language},
        "turn_detection": None,
    }
    deltas = []
    async with (
        AsyncOpenAI(api_key=server.key, base_url=f"{server.url}/v1") as openai,
        openai.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        await connection.session.update(
            session={"type": "transcription", "audio": {"input": audio}}
        )
        for at in range(0, len(pcm), 6_400):
            piece = base64.b64encode(pcm[at : at + 6_400]).decode()
            await connection.input_audio_buffer.append(audio=piece)
        await connection.input_audio_buffer.commit()
        async for event in connection:
            if event.type.endswith("transcription.delta"):
                deltas.append(event.delta)
            elif event.type.endswith("transcription.completed"):
                return "".join(deltas), event.transcript
            assert event.type != "error", event
    raise AssertionError("the connection ended before the transcript was complete")


def test_speakers_at_once_are_heard_word_for_word(server: Server, clips) -> None:
    spoken = [(clips[number], language) for number in ("03", "13") for language in (None, "own")]

    async def all_at_once() -> list[tuple[str, str]]:
        return await asyncio.gather(
            *(
                dictate(server, clip.samples, clip.language if language else None)
                for clip, language in spoken
            )
        )

    heard = asyncio.run(asyncio.wait_for(all_at_once(), 60))

    for (clip, _language), (joined, transcript) in zip(spoken, heard, strict=True):
        assert joined == transcript
        rate = jiwer.wer if clip.language == "en" else jiwer.cer
        assert rate(clip.text, transcript) <= 0.2, transcript
