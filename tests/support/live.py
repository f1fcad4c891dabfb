"""Live sessions in tests: a model that writes down what it heard, a worker, and a bare client."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from adapters.base import AdapterSpec
from core.settings import Settings
from core.transcript import TokenLogprob
from tests.support.pipeline import ADAPTER, MODEL, ChecksumAdapter, MemoryCatalog
from workers.device import DeviceWatch
from workers.gate import ModelGate
from workers.live.host import LiveHost
from workers.loaded import LoadedAdapters

CHUNK = 8_000
"""Samples that the model hears at once: half a second."""

TIMEOUT_S = 30


@dataclass(frozen=True)
class EarUpdate:
    """A piece of text, of one token."""

    delta: str

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        return (TokenLogprob(utf8=tuple(self.delta.encode()), logprob=-0.5),)


@dataclass
class EarStream:
    """Hears chunks; the text of each is how many samples it has."""

    language: str | None
    prompt: str | None
    waiting: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    heard: list[np.ndarray] = field(default_factory=list)
    is_finished: bool = False

    @property
    def buffered_ms(self) -> int:
        return len(self.waiting) * 1000 // 16_000

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate(self.heard)

    def push(self, samples: np.ndarray) -> None:
        self.waiting = np.concatenate((self.waiting, samples))

    def finish(self) -> None:
        self.is_finished = True

    def take(self) -> np.ndarray | None:
        if len(self.waiting) < CHUNK and not (self.is_finished and len(self.waiting)):
            return None
        chunk, self.waiting = self.waiting[:CHUNK], self.waiting[CHUNK:]
        return chunk


@dataclass
class Ear:
    """Stands in for `adapters.streaming.engine.StreamEngine`.

    Attributes:
        before: Called with the streams of each step that have something to hear.
        steps: How many streams each step was for.
    """

    before: Callable[[Sequence[EarStream]], None] = lambda _streams: None
    streams: list[EarStream] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def open(
        self,
        *,
        language: str | None = None,
        prompt: str | None = None,
        with_logprobs: bool = False,
    ) -> EarStream:
        self.streams.append(EarStream(language, prompt))
        return self.streams[-1]

    def step(self, streams: Sequence[EarStream]) -> list[EarUpdate | None]:
        due = [s for s in streams if len(s.waiting) >= CHUNK or (s.is_finished and len(s.waiting))]
        if due:
            self.before(due)
            self.steps.append(len(due))
        updates: list[EarUpdate | None] = []
        for stream in streams:
            chunk = stream.take()
            if chunk is not None:
                stream.heard.append(chunk)
            updates.append(None if chunk is None else EarUpdate(f" {len(chunk)}"))
        return updates


@contextmanager
def live_host(settings: Settings, *, name: str = "worker") -> Iterator[LiveHost]:
    """Run the live half of a worker; the model is whatever `start_streaming` is patched to."""
    spec = AdapterSpec(name=ADAPTER, window_ms=1000, supports_chunked_streaming=True)
    catalog = MemoryCatalog({MODEL: ChecksumAdapter(spec)})
    host = LiveHost(
        settings,
        models=[MODEL],
        name=name,
        loaded=LoadedAdapters(catalog),
        gate=ModelGate(),
        device=DeviceWatch("cpu", on_loss=lambda: None),
        stopping=threading.Event(),
    )
    host.start()
    try:
        yield host
    finally:
        host.stop()


@contextmanager
def live_client(
    url: str,
    key: str | None,
    *,
    query: str = "intent=transcription",
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator["LiveClient"]:
    """Connect to the server at `url`."""
    own = {"Authorization": f"Bearer {key}"} if key else {}
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime?{query}"
    with connect(
        address, additional_headers=own | dict(headers or {}), open_timeout=TIMEOUT_S, **options
    ) as socket:
        yield LiveClient(socket)


class LiveClient:
    """A client without manners: sends what it likes and keeps what it gets."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def update(self, **given: Any) -> None:
        """Send a `session.update` with these fields of `audio.input`."""
        session = {"type": "transcription", "audio": {"input": given}}
        self.send("session.update", session=session)

    def append(self, samples: np.ndarray, **fields: Any) -> None:
        pcm = np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
        self.append_bytes(pcm, **fields)

    def append_bytes(self, data: bytes, **fields: Any) -> None:
        self.send("input_audio_buffer.append", audio=base64.b64encode(data).decode(), **fields)

    def receive(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.socket.recv(timeout=TIMEOUT_S))
        self.events.append(event)
        return event

    def wait_for(self, kind: str) -> dict[str, Any]:
        """Return the next event of this kind; all before it are in `events`."""
        while (event := self.receive())["type"] != kind:
            assert event["type"] != "error", event
        return event

    def receive_until_error(self) -> dict[str, Any]:
        """Return the next error; all before it are in `events`."""
        while (event := self.receive())["type"] != "error":
            pass
        return event

    def wait_for_end(self) -> tuple[dict[str, Any], int]:
        """Return the last event and the close code."""
        with suppress(ConnectionClosed):
            while True:
                self.receive()
        assert self.socket.close_code is not None
        return self.events[-1], self.socket.close_code

    def types(self) -> list[str]:
        """Return the short names of all events so far."""
        prefixes = ("input_audio_buffer.", "conversation.item.input_audio_transcription.")
        names = []
        for event in self.events:
            name = event["type"]
            for prefix in prefixes:
                name = name.removeprefix(prefix)
            names.append(name)
        return names
