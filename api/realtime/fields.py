"""The fields of a live session in OpenAI's two spellings, checked one by one.

Source: openai 3.57.0, types/realtime/realtime_transcription_session_create_request.py ("GA") and
types/beta/realtime/transcription_session_update.py ("beta").
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from core.errors import InvalidOption
from core.live import Encoding, TurnRules

LOGPROBS = "item.input_audio_transcription.logprobs"

ENCODINGS = {
    "audio/pcm": Encoding.PCM16,
    "audio/pcmu": Encoding.ULAW,
    "audio/pcma": Encoding.ALAW,
}
RATES_HZ = {
    Encoding.PCM16: (24_000, 16_000, 48_000),
    Encoding.ULAW: (8_000,),
    Encoding.ALAW: (8_000,),
}
"""The first is meant where none is named, as always in the older dialect."""

EAGERNESS_MS = {"low": 2000, "medium": 1000, "auto": 1000, "high": 500}
"""Silence that ends a turn. Nothing here judges whether a sentence is complete, so these are a
quarter of the longest that OpenAI waits where its model thinks that it is not (8, 4 and 2 s)."""

_REASONS = {
    "include": f"{LOGPROBS} is all that can be included",
    "delay": "the delay cannot be chosen; leave it out or send null",
    "idle_timeout_ms": "nothing is said when nobody speaks; leave it out or send null",
    "create_response": "a transcription session gives no responses; leave it out or send false",
    "interrupt_response": "a transcription session gives no responses; leave it out or send false",
}


class Fields(BaseModel):
    """No field is ignored, none is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


F = TypeVar("F", bound=Fields)


class Format(Fields):
    """The audio's format; G.711 has one rate, which need not be said."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: int | None = None

    @field_validator("rate")
    @classmethod
    def _check_rate(cls, rate: int | None, info: ValidationInfo) -> int | None:
        kind = info.data.get("type")
        if rate is not None and kind is not None and rate not in RATES_HZ[ENCODINGS[kind]]:
            known = ", ".join(map(str, RATES_HZ[ENCODINGS[kind]]))
            raise ValueError(f"of {kind} is one of {known}")
        return rate

    @property
    def encoding(self) -> Encoding:
        """How samples are written."""
        return ENCODINGS[self.type]

    @property
    def rate_hz(self) -> int:
        """Samples a second."""
        return self.rate or RATES_HZ[self.encoding][0]


class Transcription(Fields):
    """How the audio is to be read."""

    model: str | None = None
    language: str | None = None
    languages: Annotated[list[str], Field(max_length=1)] | None = None
    prompt: str | None = None
    keywords: list[str] | None = None
    delay: None = None


class TurnDetection(Fields):
    """Where turns end; `create_response` and its like are for sessions that speak."""

    type: Literal["server_vad", "semantic_vad"]
    threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    prefix_padding_ms: Annotated[int, Field(ge=0, le=5000)] | None = None
    silence_duration_ms: Annotated[int, Field(ge=32, le=60_000)] | None = None
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    create_response: Literal[False] | None = None
    interrupt_response: Literal[False] | None = None
    idle_timeout_ms: None = None

    @field_validator("threshold", "prefix_padding_ms", "silence_duration_ms", "eagerness")
    @classmethod
    def _check_kind(cls, value: object, info: ValidationInfo) -> object:
        wanted = "semantic_vad" if info.field_name == "eagerness" else "server_vad"
        if value is not None and info.data.get("type", wanted) != wanted:
            raise ValueError(f"is for {wanted} only")
        return value

    def rules(self) -> TurnRules:
        """Return what the worker is to do."""
        if self.type == "semantic_vad":
            eagerness = self.eagerness or "auto"
            return TurnRules(silence_ms=EAGERNESS_MS[eagerness], eagerness=eagerness)
        given = {
            "threshold": self.threshold,
            "prefix_padding_ms": self.prefix_padding_ms,
            "silence_ms": self.silence_duration_ms,
        }
        chosen: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        return TurnRules(**chosen)


class Reduction(Fields):
    """What kind of microphone it is."""

    type: Literal["near_field", "far_field"]


class Input(Fields):
    """`session.audio.input`."""

    format: Format | None = None
    transcription: Transcription | None = None
    noise_reduction: Reduction | None = None
    turn_detection: TurnDetection | None = None


class Audio(Fields):
    """`session.audio`."""

    input: Input | None = None


Include = Annotated[list[Literal["item.input_audio_transcription.logprobs"]], Field(max_length=1)]


class Session(Fields):
    """`session` of a `session.update`."""

    type: Literal["transcription"] = "transcription"
    audio: Audio | None = None
    include: Include | None = None


class BetaSession(Fields):
    """`session` of a `transcription_session.update`."""

    input_audio_format: Literal["pcm16", "g711_ulaw", "g711_alaw"] | None = None
    input_audio_transcription: Transcription | None = None
    input_audio_noise_reduction: Reduction | None = None
    turn_detection: TurnDetection | None = None
    include: Include | None = None
    modalities: list[Literal["text"]] | None = None


def parse_fields(model: type[F], session: object) -> F:
    """Return the session's fields.

    Raises:
        InvalidOption: A field is unknown or has a value that cannot be honoured; it is named.
    """
    try:
        return model.model_validate(session)
    except ValidationError as exc:
        error = exc.errors()[0]
        names = [str(part) for part in ("session", *error["loc"])]
        param = ".".join(names)[:200]
        reason = next((_REASONS[name] for name in reversed(names) if name in _REASONS), None)
        if error["type"] == "extra_forbidden":
            reason = "unknown or unsupported parameter"
        reason = reason or error["msg"].removeprefix("Value error, ")
        raise InvalidOption(f"{param}: {reason}", param=param) from exc
