"""Live sessions between API and workers: names in Redis and what is said there.

Nothing of a session outlives its keys, and every key expires unless its owner renews it:

* `live:<id>`: the model's name; renewed by the API for as long as the client is there;
* `live:<id>:audio`: a stream of what the client sent; the worker deletes what it has read;
* `live:<id>:worker`: the worker that has the session; renewed by it;
* `live:<id>:events`: a channel, what the worker says; numbered, so that a loss is noticed;
* `live:waiting:<model>`: sessions without a worker by their age. The truth: a worker looks here;
* `live:wake:<model>`: a stream that only ends a worker's waiting sooner;
* `live:key:<key>`: sessions of an API key by the time at which they are given up.
"""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import Any, Self
from uuid import UUID

TICKS_HZ = 48_000
"""Positions in a session's audio are counted in ticks: every rate divides them evenly."""

EVENTS_PATTERN = "live:*:events"
WAKE_LENGTH = 16
"""Hints that are kept; losing one costs at most `WAKE_S`."""
WAKE_S = 0.5
"""How long a worker sleeps at most before it looks for waiting sessions."""


def can_reduce_noise() -> bool:
    """Whether the filter is installed; there are builds of it for Linux only."""
    return find_spec("webrtc_noise_gain") is not None


def session_key(session_id: str) -> str:
    """Return the key that says the client is there."""
    return f"live:{session_id}"


def audio_key(session_id: str) -> str:
    """Return the stream of what the client sent."""
    return f"live:{session_id}:audio"


def worker_key(session_id: str) -> str:
    """Return the key that says a worker has the session."""
    return f"live:{session_id}:worker"


def events_channel(session_id: str) -> str:
    """Return the channel of what the worker says."""
    return f"live:{session_id}:events"


def waiting_key(model: str) -> str:
    """Return the sorted set of sessions that wait for a worker with `model`."""
    return f"live:waiting:{model}"


def wake_key(model: str) -> str:
    """Return the stream that wakes workers with `model`."""
    return f"live:wake:{model}"


def owner_key(key_id: UUID) -> str:
    """Return the sorted set of an API key's sessions."""
    return f"live:key:{key_id}"


class Sent(StrEnum):
    """What an entry of the audio stream is."""

    CONFIG = "config"
    AUDIO = "audio"
    COMMIT = "commit"
    CLEAR = "clear"
    END = "end"


class Told(StrEnum):
    """What a worker says. All but `HEARD` carry a `seq` that begins at 1 and has no gaps.

    `READY` says that the model is loaded, `HEARD` how far it has heard.
    """

    READY = "ready"
    HEARD = "heard"
    SPEECH_STARTED = "speech_started"
    SPEECH_STOPPED = "speech_stopped"
    COMMITTED = "committed"
    CLEARED = "cleared"
    DELTA = "delta"
    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"
    ENDED = "ended"


class Encoding(StrEnum):
    """How a sample is written: PCM16 is little-endian, G.711's laws have a byte a sample."""

    PCM16 = "pcm16"
    ULAW = "g711_ulaw"
    ALAW = "g711_alaw"

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return 2 if self is Encoding.PCM16 else 1


class NoiseReduction(StrEnum):
    """What the microphone is: one at the mouth, or one of a room or a laptop."""

    NEAR_FIELD = "near_field"
    FAR_FIELD = "far_field"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRules:
    """When a speaker's turn begins and ends; OpenAI's defaults for `server_vad`.

    Attributes:
        threshold: Probability from which a moment counts as speech.
        prefix_padding_ms: Audio before the speech that belongs to the turn.
        silence_ms: Silence that ends it.
        eagerness: The word that the client chose `silence_ms` by, if it was one.
    """

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_ms: int = 500
    eagerness: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """How a session's audio is to be read.

    Attributes:
        encoding: Of what the client sends, at `rate_hz`.
        language: Code to force, or None to detect it.
        turns: None if the client commits its turns itself.
        noise_reduction: What filters the audio before turns are sought in it; None for nothing.
        logprobs: Whether the log probabilities of the text's tokens are told with it.
    """

    model: str
    rate_hz: int = 24_000
    encoding: Encoding = Encoding.PCM16
    language: str | None = None
    prompt: str | None = None
    turns: TurnRules | None = field(default_factory=TurnRules)
    noise_reduction: NoiseReduction | None = None
    logprobs: bool = False

    def count_ticks(self, num_bytes: int) -> int:
        """Return how many ticks of audio are in so many bytes."""
        return num_bytes // self.encoding.sample_bytes * (TICKS_HZ // self.rate_hz)

    def to_json(self) -> str:
        """Return the data of a `Sent.CONFIG` entry."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """Read what `to_json` wrote."""
        fields = json.loads(data)
        turns, reduction = fields.pop("turns"), fields.pop("noise_reduction")
        return cls(
            **fields | {"encoding": Encoding(fields["encoding"])},
            turns=None if turns is None else TurnRules(**turns),
            noise_reduction=None if reduction is None else NoiseReduction(reduction),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the audio stream.

    Attributes:
        data: JSON of the config, or audio as the config says.
        event_id: The client's name for the event that this came from.
    """

    kind: Sent
    data: bytes = b""
    event_id: str | None = None

    def fields(self) -> dict[Any, Any]:
        """Return the fields of the stream entry, as redis-py takes them."""
        fields = {"kind": str(self.kind), "data": self.data}
        return fields if self.event_id is None else {**fields, "event_id": self.event_id}

    @classmethod
    def read(cls, fields: dict[bytes, bytes]) -> Self:
        """Read what `fields` wrote."""
        event_id = fields.get(b"event_id")
        return cls(
            kind=Sent(fields[b"kind"].decode()),
            data=fields[b"data"],
            event_id=None if event_id is None else event_id.decode(),
        )


def dump_message(kind: Told, seq: int | None, fields: dict[str, Any]) -> str:
    """Return what is published for one event."""
    head: dict[str, Any] = {"type": str(kind)} if seq is None else {"type": str(kind), "seq": seq}
    return json.dumps(head | fields, ensure_ascii=False, separators=(",", ":"))
