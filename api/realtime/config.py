"""What a client may set of a live session, in OpenAI's two spellings: honoured or refused by name.

Source: openai 3.57.0, types/realtime/realtime_transcription_session_create_request.py ("GA") and
types/beta/realtime/transcription_session_update.py ("beta").
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.openai.fields import ALIASES
from core.checkpoints import get_model
from core.errors import InvalidOption
from core.live import LiveConfig, TurnRules
from core.options import AUTO, MULTI, TranscribeOptions
from core.settings import Settings
from lifecycle.submissions import check_text

LIVE_ALIASES = ALIASES | {"gpt-realtime-whisper", "gpt-transcribe", "gpt-live-transcribe"}
"""OpenAI's names that mean our default model here."""

BETA_RATE_HZ = 24_000
"""What "pcm16" means."""

URL_ALIASES = LIVE_ALIASES | {
    "gpt-realtime",
    "gpt-realtime-mini",
    "gpt-4o-realtime-preview",
    "gpt-4o-mini-realtime-preview",
}
"""In the address OpenAI's older clients have to name the model that would talk back."""

_LOGPROBS = "item.input_audio_transcription.logprobs"


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


F = TypeVar("F", bound=_Fields)


class _Format(_Fields):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[16000, 24000, 48000] = 24000


class _Transcription(_Fields):
    model: str | None = None
    language: str | None = None
    languages: Annotated[list[str], Field(max_length=1)] | None = None
    prompt: str | None = None
    keywords: list[str] | None = None
    delay: None = None


class _ServerVad(_Fields):
    """`create_response` and its like are for sessions that speak."""

    type: Literal["server_vad"]
    threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    prefix_padding_ms: Annotated[int, Field(ge=0, le=5000)] | None = None
    silence_duration_ms: Annotated[int, Field(ge=32, le=60_000)] | None = None
    create_response: Literal[False] | None = None
    interrupt_response: Literal[False] | None = None
    idle_timeout_ms: None = None

    def rules(self) -> TurnRules:
        given = {
            "threshold": self.threshold,
            "prefix_padding_ms": self.prefix_padding_ms,
            "silence_ms": self.silence_duration_ms,
        }
        chosen: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        return TurnRules(**chosen)


class _Input(_Fields):
    format: _Format | None = None
    transcription: _Transcription | None = None
    noise_reduction: None = None
    turn_detection: _ServerVad | None = None


class _Audio(_Fields):
    input: _Input | None = None


class _Session(_Fields):
    type: Literal["transcription"] = "transcription"
    audio: _Audio | None = None
    include: Annotated[list[str], Field(max_length=0)] | None = None


class _BetaSession(_Fields):
    input_audio_format: Literal["pcm16"] | None = None
    input_audio_transcription: _Transcription | None = None
    input_audio_noise_reduction: None = None
    turn_detection: _ServerVad | None = None
    include: Annotated[list[str], Field(max_length=0)] | None = None
    modalities: list[Literal["text"]] | None = None


_REASONS = {
    "noise_reduction": "noise is not reduced here; leave it out or send null",
    "input_audio_noise_reduction": "noise is not reduced here; leave it out or send null",
    "include": f"there are no additional fields; {_LOGPROBS} is not supported in live sessions",
    "delay": "the delay cannot be chosen; leave it out or send null",
    "idle_timeout_ms": "nothing is said when nobody speaks; leave it out or send null",
    "create_response": "a transcription session gives no responses; leave it out or send false",
    "interrupt_response": "a transcription session gives no responses; leave it out or send false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A session's settings, as the client sees them and as the worker gets them."""

    settings: Settings
    config: LiveConfig

    @classmethod
    def default(cls, settings: Settings, model: str | None) -> Self:
        """Return what holds before the client sets anything; raises `UnknownModel`.

        Args:
            model: As it is named in the address.
        """
        name = None if model in URL_ALIASES else model
        return cls(settings=settings, config=LiveConfig(model=_model_name(settings, name)))

    def update(self, session: object) -> Self:
        """Apply the `session` of a `session.update`: what it does not name stays as it is.

        Raises:
            InvalidOption: A field is unknown or has a value that cannot be honoured.
        """
        fields = _validate(_Session, session)
        given = fields.audio.input if fields.audio is not None else None
        if given is None:
            return self
        config = self.config
        if given.format is not None:
            config = replace(config, rate_hz=given.format.rate)
        return self._apply(config, given, given.transcription)

    def update_beta(self, session: object) -> Self:
        """Apply the `session` of a `transcription_session.update`, as above."""
        fields = _validate(_BetaSession, session)
        config = self.config
        if fields.input_audio_format is not None:
            config = replace(config, rate_hz=BETA_RATE_HZ)
        return self._apply(config, fields, fields.input_audio_transcription)

    def _apply(
        self, config: LiveConfig, given: "_Input | _BetaSession", text: _Transcription | None
    ) -> Self:
        if "turn_detection" in given.model_fields_set:
            vad = given.turn_detection
            config = replace(config, turns=None if vad is None else vad.rules())
        if text is not None:
            config = self._apply_text(config, text)
        return replace(self, config=config)

    def _apply_text(self, config: LiveConfig, text: _Transcription) -> LiveConfig:
        named = text.model_fields_set
        if "model" in named:
            config = replace(config, model=_model_name(self.settings, text.model))
        if named & {"language", "languages"}:
            if text.language and text.languages:
                raise InvalidOption(
                    "languages: at most one language can be given", param="languages"
                )
            language = text.language or "".join(text.languages or [])
            checked = TranscribeOptions.parse({"language": language}).language
            config = replace(config, language=None if checked in (AUTO, MULTI) else checked)
        if named & {"prompt", "keywords"}:
            parts = [text.prompt or "", ", ".join(text.keywords or [])]
            prompt = " ".join(part for part in parts if part) or None
            if prompt is not None:
                check_text(prompt, param="prompt")
            prompt = TranscribeOptions.parse({"prompt": prompt}).prompt
            config = replace(config, prompt=prompt)
        return config

    def describe(self) -> dict[str, Any]:
        """Return the `session` of OpenAI's events, but for its id and expiry."""
        config = self.config
        return {
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": config.rate_hz},
                    "transcription": self._describe_text(),
                    "noise_reduction": None,
                    "turn_detection": self._describe_turns(),
                }
            },
            "include": None,
        }

    def describe_beta(self) -> dict[str, Any]:
        """Return the `session` of OpenAI's older events."""
        return {
            "object": "realtime.transcription_session",
            "input_audio_format": "pcm16",
            "input_audio_transcription": self._describe_text(),
            "input_audio_noise_reduction": None,
            "turn_detection": self._describe_turns(),
            "include": None,
        }

    def _describe_text(self) -> dict[str, Any]:
        config = self.config
        return {"model": config.model, "language": config.language, "prompt": config.prompt}

    def _describe_turns(self) -> dict[str, Any] | None:
        turns = self.config.turns
        if turns is None:
            return None
        return {
            "type": "server_vad",
            "threshold": turns.threshold,
            "prefix_padding_ms": turns.prefix_padding_ms,
            "silence_duration_ms": turns.silence_ms,
        }


def _model_name(settings: Settings, name: str | None) -> str:
    return get_model(settings, None if name in LIVE_ALIASES else name).name


def _validate(model: type[F], session: object) -> F:
    try:
        return model.model_validate(session)
    except ValidationError as exc:
        error = exc.errors()[0]
        names = [str(part) for part in ("session", *error["loc"])]
        param = ".".join(names)
        reason = next((_REASONS[name] for name in reversed(names) if name in _REASONS), None)
        if error["type"] == "extra_forbidden":
            reason = "unknown or unsupported parameter"
        raise InvalidOption(f"{param[:200]}: {reason or error['msg']}", param=param[:200]) from exc
