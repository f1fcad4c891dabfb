"""A live session's settings: what holds, what an update makes of it, and how clients see it."""

from dataclasses import dataclass, replace
from typing import Any, Self

from api.openai.fields import ALIASES
from api.realtime.fields import (
    ENCODINGS,
    LOGPROBS,
    RATES_HZ,
    BetaSession,
    Input,
    Reduction,
    Session,
    Transcription,
    parse_fields,
)
from core.checkpoints import get_model
from core.errors import InvalidOption
from core.live import Encoding, LiveConfig, NoiseReduction, can_reduce_noise
from core.options import AUTO, MULTI, TranscribeOptions
from core.settings import Settings
from lifecycle.submissions import check_text

LIVE_ALIASES = ALIASES | {"gpt-realtime-whisper", "gpt-transcribe", "gpt-live-transcribe"}
"""OpenAI's names that mean our default model here."""

URL_ALIASES = LIVE_ALIASES | {
    "gpt-realtime",
    "gpt-realtime-mini",
    "gpt-4o-realtime-preview",
    "gpt-4o-mini-realtime-preview",
}
"""In the address OpenAI's older clients have to name the model that would talk back."""

_FORMATS = {encoding: name for name, encoding in ENCODINGS.items()}


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
        fields = parse_fields(Session, session)
        config = _include(self.config, fields)
        given = fields.audio.input if fields.audio is not None else None
        if given is None:
            return replace(self, config=config)
        if given.format is not None:
            encoding, rate_hz = given.format.encoding, given.format.rate_hz
            config = replace(config, encoding=encoding, rate_hz=rate_hz)
        if "noise_reduction" in given.model_fields_set:
            config = _reduce_noise(config, given.noise_reduction)
        return self._apply(config, given, given.transcription)

    def update_beta(self, session: object) -> Self:
        """Apply the `session` of a `transcription_session.update`, as above."""
        fields = parse_fields(BetaSession, session)
        config = _include(self.config, fields)
        if fields.input_audio_format is not None:
            encoding = Encoding(fields.input_audio_format)
            config = replace(config, encoding=encoding, rate_hz=RATES_HZ[encoding][0])
        if "input_audio_noise_reduction" in fields.model_fields_set:
            config = _reduce_noise(config, fields.input_audio_noise_reduction)
        return self._apply(config, fields, fields.input_audio_transcription)

    def _apply(
        self, config: LiveConfig, given: Input | BetaSession, text: Transcription | None
    ) -> Self:
        if "turn_detection" in given.model_fields_set:
            turns = given.turn_detection
            config = replace(config, turns=None if turns is None else turns.rules())
        if text is not None:
            config = self._apply_text(config, text)
        return replace(self, config=config)

    def _apply_text(self, config: LiveConfig, text: Transcription) -> LiveConfig:
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
        return {
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {
                "input": {
                    "format": self._describe_format(),
                    "transcription": self._describe_text(),
                    "noise_reduction": self._describe_noise_reduction(),
                    "turn_detection": self._describe_turns(),
                }
            },
            "include": self._describe_include(),
        }

    def describe_beta(self) -> dict[str, Any]:
        """Return the `session` of OpenAI's older events."""
        return {
            "object": "realtime.transcription_session",
            "input_audio_format": str(self.config.encoding),
            "input_audio_transcription": self._describe_text(),
            "input_audio_noise_reduction": self._describe_noise_reduction(),
            "turn_detection": self._describe_turns(),
            "include": self._describe_include(),
        }

    def _describe_format(self) -> dict[str, Any]:
        kind = {"type": _FORMATS[self.config.encoding]}
        has_rate = self.config.encoding is Encoding.PCM16
        return kind | {"rate": self.config.rate_hz} if has_rate else kind

    def _describe_text(self) -> dict[str, Any]:
        config = self.config
        return {"model": config.model, "language": config.language, "prompt": config.prompt}

    def _describe_noise_reduction(self) -> dict[str, Any] | None:
        reduction = self.config.noise_reduction
        return None if reduction is None else {"type": str(reduction)}

    def _describe_turns(self) -> dict[str, Any] | None:
        turns = self.config.turns
        if turns is None:
            return None
        if turns.eagerness is not None:
            return {"type": "semantic_vad", "eagerness": turns.eagerness}
        return {
            "type": "server_vad",
            "threshold": turns.threshold,
            "prefix_padding_ms": turns.prefix_padding_ms,
            "silence_duration_ms": turns.silence_ms,
        }

    def _describe_include(self) -> list[str] | None:
        return [LOGPROBS] if self.config.logprobs else None


def _include(config: LiveConfig, fields: Session | BetaSession) -> LiveConfig:
    if "include" not in fields.model_fields_set:
        return config
    return replace(config, logprobs=bool(fields.include))


def _reduce_noise(config: LiveConfig, given: Reduction | None) -> LiveConfig:
    if given is None:
        return replace(config, noise_reduction=None)
    if not can_reduce_noise():
        raise InvalidOption(
            "noise_reduction: the filter is not installed on this platform; null works.",
            param="noise_reduction",
        )
    return replace(config, noise_reduction=NoiseReduction(given.type))


def _model_name(settings: Settings, name: str | None) -> str:
    return get_model(settings, None if name in LIVE_ALIASES else name).name
