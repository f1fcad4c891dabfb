"""What a caller may ask of a transcription; stored as `jobs.options`, checked at the door."""

from enum import IntEnum, StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from core import errors
from core.languages import find_language

AUTO = "auto"
MULTI = "multi"


class TaskKind(StrEnum):
    """What to write: the words as spoken, or their English translation (Whisper only)."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


class Timestamps(StrEnum):
    """How fine the times are."""

    SEGMENT = "segment"
    WORD = "word"
    NONE = "none"


class Channels(StrEnum):
    """One mixed track, or one transcript a channel merged by time."""

    MIX = "mix"
    SPLIT = "split"


class Priority(IntEnum):
    """Lower goes first. On the wire the lower-case name."""

    INTERACTIVE = 0
    STANDARD = 10
    BULK = 20


class OnWindowFailure(StrEnum):
    """What a window that keeps failing does to its job."""

    FAIL = "fail"
    GAP = "gap"


class TranscribeOptions(BaseModel):
    """Everything that can change the words of a transcript.

    Two jobs with equal media, checkpoint revision and options have equal transcripts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    language: str = Field(
        default=AUTO, description="Language code, `auto` (one vote a job) or `multi` (each window)."
    )
    prompt: str | None = Field(
        default=None, max_length=65_536, description="Context: names, terms, the text before."
    )
    task: TaskKind = TaskKind.TRANSCRIBE
    timestamps: Timestamps = Timestamps.SEGMENT
    channels: Channels = Channels.MIX
    vad: bool = Field(default=True, description="Leave out what is not speech.")
    temperature: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] | None = Field(
        default=None, description="Fixed sampling temperature; unset means greedy with fallback."
    )
    on_window_failure: OnWindowFailure = OnWindowFailure.FAIL
    stream: bool = Field(default=False, description="Publish text deltas as they are decoded.")
    logprobs: bool = Field(
        default=False, description="Keep each token's log probability, for `json` and events."
    )

    @field_validator("language", mode="before")
    @classmethod
    def _known_language(cls, value: Any) -> Any:  # noqa: ANN401
        if value is None or (isinstance(value, str) and not value.strip()):
            return AUTO
        if not isinstance(value, str):
            return value
        lowered = value.strip().lower()
        if lowered in (AUTO, MULTI):
            return lowered
        code = find_language(value)
        if code is None:
            raise ValueError(f"{value!r} is not a language code this service knows")
        return code

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> Self:
        """Return the options in `raw`, where None means unset.

        Raises:
            UnknownLanguage: `language` is no known code or name.
            InvalidOption: Another option is unknown or has a wrong value; `param` names it.
        """
        try:
            return cls.model_validate(
                {key: value for key, value in raw.items() if value is not None}
            )
        except ValidationError as exc:
            first = exc.errors()[0]
            param = str(first["loc"][0]) if first["loc"] else "options"
            kind = errors.UnknownLanguage if param == "language" else errors.InvalidOption
            raise kind(
                f"{param}: {first['msg'].removeprefix('Value error, ')}", param=param
            ) from exc
