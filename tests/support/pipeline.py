"""A pipeline without Celery or models: messages are run in order, recognition is a checksum."""

import io
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import soundfile

from adapters.base import Adapter, AdapterSpec, Window
from core.db import unit_of_work
from core.errors import UnknownModel
from core.events import JobEvent
from core.ids import new_id
from core.options import Priority, TranscribeOptions
from core.transcript import Hypothesis, Segment, TokenLogprob
from lifecycle.submitting import add_job, announce_job
from models import LOCAL_KEY_ID, Media
from workers.catalog import Description
from workers.context import WorkerContext
from workers.engine import Engine
from workers.finish import finish
from workers.prepare import prepare

MODEL = "checksum"
ADAPTER = "checksum"
START = datetime(2026, 1, 1, tzinfo=UTC)


def text_of(samples: np.ndarray) -> str:
    """Return what the checksum adapter hears in `samples`."""
    return f"{zlib.crc32(samples.tobytes()):08x}"


def _spell(text: str) -> tuple[TokenLogprob, ...]:
    """Return one token a character, and a space before them as real ones have."""
    return tuple(TokenLogprob(utf8=(ord(char),), logprob=-0.5) for char in f" {text}")


@dataclass
class ChecksumAdapter:
    """Writes a window's checksum, so that every text tells exactly which samples it came from."""

    spec: AdapterSpec
    languages: frozenset[str] = frozenset({"en", "de", "fr"})
    before: Callable[[Sequence[Window]], None] = lambda _windows: None
    detect: Callable[[Window], dict[str, float]] = lambda _window: {"en": 1.0}
    batches: list[list[Window]] = field(default_factory=list)
    detected: list[Window] = field(default_factory=list)
    is_closed: bool = False

    def detect_language(self, windows: Sequence[Window]) -> list[dict[str, float]]:
        self.detected += windows
        return [self.detect(window) for window in windows]

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        self.batches.append(list(windows))
        self.before(windows)
        return [
            Hypothesis(
                segments=(
                    Segment(
                        text=text_of(w.samples),
                        start_ms=0,
                        end_ms=w.duration_ms,
                        token_logprobs=_spell(text_of(w.samples)) if w.with_logprobs else (),
                    ),
                ),
                language=w.language or "en",
            )
            for w in windows
        ]

    def close(self) -> None:
        self.is_closed = True


@dataclass
class MemoryCatalog:
    """Serves adapters that exist already."""

    adapters: dict[str, ChecksumAdapter]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.adapters)

    def describe(self, model: str) -> Description:
        if model not in self.adapters:
            raise UnknownModel(f"{model!r} is not served here.", param="model")
        return Description(spec=self.adapters[model].spec, revision="r1")

    def load(self, model: str) -> Adapter:
        return self.adapters[model]


@dataclass
class MessageLog:
    """Keeps messages until they are run, like a broker."""

    waiting: deque[tuple[str, UUID | str]] = field(default_factory=deque)
    num_sent: int = 0

    def prepare(self, job_id: UUID, *, priority: int) -> None:
        self._send("prepare", job_id)

    def wake(self, adapter: str, *, count: int = 1) -> None:
        for _ in range(count):
            self._send("recognise", adapter)

    def finish(self, job_id: UUID) -> None:
        self._send("finish", job_id)

    def deliver(self) -> None:
        self._send("deliver", "")

    def expand(self, batch_id: UUID) -> None:
        self._send("expand", batch_id)

    def depth(self, queue: str) -> int:
        kinds = {"media": ("prepare", "finish"), "delivery": ("deliver",)}
        wanted = kinds.get(queue, ("recognise",))
        return sum(kind in wanted for kind, _ in self.waiting)

    def _send(self, kind: str, subject: UUID | str) -> None:
        self.num_sent += 1
        self.waiting.append((kind, subject))


@dataclass
class EventLog:
    """Keeps what was published."""

    published: list[JobEvent] = field(default_factory=list)

    def publish(self, *events: JobEvent) -> None:
        self.published += events

    def deliveries_due(self) -> None:
        pass


@dataclass
class Clock:
    """Stands still until it is moved."""

    at: datetime = START

    def __call__(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Pipeline:
    """All of a worker, driven by hand."""

    context: WorkerContext
    adapter: ChecksumAdapter
    messages: MessageLog
    events: EventLog
    clock: Clock
    engine: Engine

    def step(self) -> bool:
        """Run the oldest message; return whether there was one."""
        if not self.messages.waiting:
            return False
        kind, subject = self.messages.waiting.popleft()
        if kind == "prepare":
            assert isinstance(subject, UUID)
            prepare(self.context, subject)
        elif kind == "finish":
            assert isinstance(subject, UUID)
            finish(self.context, subject)
        elif kind == "recognise":
            self.engine.run()
        return True

    def submit(
        self,
        media: bytes,
        *,
        options: TranscribeOptions,
        model: str = MODEL,
        key_id: UUID = LOCAL_KEY_ID,
        priority: int = Priority.STANDARD,
    ) -> UUID:
        """Store a recording and submit it; return the job's id."""
        context = self.context
        key = f"media/{new_id()}"
        context.storage.put(key, media)
        with unit_of_work(context.sessions) as uow:
            job = add_job(
                uow.session,
                key_id=key_id,
                media=Media(key_id=key_id, storage_key=key, created_at=context.now()),
                model=model,
                options=options,
                priority=priority,
                now=context.now(),
            )
            uow.session.flush()
            announce_job(uow, context.queue, context.publisher, job, now=context.now())
            return job.id

    def run(self) -> None:
        """Run messages until none is left."""
        while self.step():
            pass

    def new_engine(self, name: str = "another") -> Engine:
        """Return an engine as another process would have it."""
        return Engine(self.context, adapter=ADAPTER, models=self.context.catalog.models, name=name)


def noise(seconds: float, *, seed: int = 1) -> np.ndarray:
    """Return white noise that 16 bits hold exactly."""
    rng = np.random.default_rng(seed)
    return rng.integers(-8000, 8000, int(seconds * 16_000)).astype(np.float32) / 32768


def wav(samples: np.ndarray) -> bytes:
    """Return samples, shape (n,) or (n, channels), as a WAV file."""
    out = io.BytesIO()
    soundfile.write(out, samples, 16_000, format="WAV", subtype="PCM_16")
    return out.getvalue()
