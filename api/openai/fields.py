"""OpenAI's form fields: each one honoured, or refused by name.

Source: openai 3.57.0, types/audio/transcription_create_params.py and translation_create_params.py.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from core.checkpoints import get_model
from core.errors import InvalidOption
from core.options import Priority, TaskKind, Timestamps, TranscribeOptions
from core.settings import Settings
from lifecycle.submissions import Submission, check_text

ALIASES = frozenset(
    {
        "whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe",
        "gpt-4o-mini-transcribe-2025-12-15",
    }
)  # fmt: skip
"""Names in OpenAI's clients that mean our default model."""

RESPONSE_FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
STREAM_FORMATS = ("json", "text")
GRANULARITIES = ("word", "segment")
INCLUDES = ("logprobs",)
KEPT = timedelta(hours=24)
"""OpenAI's callers never see a job to delete, so it goes by itself."""

_LISTS = frozenset({"timestamp_granularities", "include", "keywords", "languages"})
_TRANSLATION = frozenset({"model", "prompt", "response_format", "temperature"})
_TRANSCRIPTION = _TRANSLATION | _LISTS | {"language", "stream", "chunking_strategy"}
# OpenAI's documented defaults; the speech detector here cannot be set for one request.
_SERVER_VAD = {"threshold": 0.5, "prefix_padding_ms": 300.0, "silence_duration_ms": 200.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioRequest:
    """What to do and how to answer."""

    submission: Submission
    response_format: str = "json"
    has_segments: bool = True
    has_words: bool = False
    is_stream: bool = False
    has_logprobs: bool = False


def parse_audio_request(
    settings: Settings, task: TaskKind, fields: Iterable[tuple[str, str]]
) -> AudioRequest:
    """Return the request that the plain fields of the form describe.

    Raises:
        InvalidOption: A field is unknown, repeated, or has a value that cannot be honoured.
        UnknownModel: No such model is served.
    """
    values, lists, vad = _sort_fields(fields, task)
    is_stream = _read_stream(values)
    response_format = _read_format(values, is_stream=is_stream)
    granularities = _read_granularities(lists, response_format)
    has_logprobs = _read_include(lists, response_format)
    _check_chunking(values.get("chunking_strategy"), vad)
    has_words = "word" in granularities
    options = TranscribeOptions.parse(
        {
            "task": task,
            "language": _read_language(values, lists),
            "prompt": _read_prompt(values, lists),
            "temperature": _read_temperature(values),
            "timestamps": Timestamps.WORD if has_words else Timestamps.SEGMENT,
            # Text that is told while it is being decoded has no log probabilities yet; whole
            # segments have.
            "stream": is_stream and not has_logprobs,
            "logprobs": has_logprobs,
        }
    )
    model = values.get("model")
    return AudioRequest(
        submission=Submission(
            model=get_model(settings, None if model in ALIASES else model).name,
            options=options,
            priority=Priority.INTERACTIVE,
            delete_after=KEPT,
        ),
        response_format=response_format,
        has_segments="segment" in granularities,
        has_words=has_words,
        is_stream=is_stream,
        has_logprobs=has_logprobs,
    )


def _sort_fields(
    fields: Iterable[tuple[str, str]], task: TaskKind
) -> tuple[dict[str, str], dict[str, list[str]], dict[str, str]]:
    """Return scalars, lists and the members of chunking_strategy; SDKs spell lists two ways."""
    known = _TRANSLATION if task is TaskKind.TRANSLATE else _TRANSCRIPTION
    values: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    vad: dict[str, str] = {}
    for name, value in fields:
        base, bracket, member = name.partition("[")
        check_text(value, param=name)
        if base not in known:
            raise InvalidOption(f"{name[:64]}: unknown or unsupported parameter", param=name[:64])
        if base in _LISTS and member in ("", "]"):
            lists.setdefault(base, []).append(value)
        elif base == "chunking_strategy" and bracket and member.endswith("]"):
            vad[member[:-1]] = value
        elif bracket:
            raise InvalidOption(f"{name[:64]}: unknown or unsupported parameter", param=name[:64])
        elif name in values:
            raise InvalidOption(f"{name}: given more than once", param=name)
        elif value:
            values[name] = value
    return values, lists, vad


def _read_stream(values: Mapping[str, str]) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    text = values.get("stream", "false").lower()
    if text not in known:
        raise InvalidOption("stream: true or false", param="stream")
    return known[text]


def _read_format(values: Mapping[str, str], *, is_stream: bool) -> str:
    name = values.get("response_format", "json")
    if name not in RESPONSE_FORMATS:
        why = "; speakers are not told apart here" if name == "diarized_json" else ""
        raise InvalidOption(
            f"response_format: {name[:64]!r} is not one of {', '.join(RESPONSE_FORMATS)}{why}",
            param="response_format",
        )
    if is_stream and name not in STREAM_FORMATS:
        raise InvalidOption(
            f"response_format: with stream=true one of {', '.join(STREAM_FORMATS)}",
            param="response_format",
        )
    return name


def _read_granularities(lists: Mapping[str, list[str]], response_format: str) -> set[str]:
    given = set(lists.get("timestamp_granularities", []))
    param = "timestamp_granularities[]"
    if not given.issubset(GRANULARITIES):
        raise InvalidOption(f"{param}: each one of {', '.join(GRANULARITIES)}", param=param)
    if given and response_format != "verbose_json":
        raise InvalidOption(f"{param}: needs response_format=verbose_json", param=param)
    return given or {"segment"}


def _read_include(lists: Mapping[str, list[str]], response_format: str) -> bool:
    """Return whether log probabilities are asked for: all that can be included."""
    param = "include[]"
    given = lists.get("include", [])
    for value in given:
        if value not in INCLUDES:
            raise InvalidOption(f"{param}: each one of {', '.join(INCLUDES)}", param=param)
    if given and response_format != "json":
        raise InvalidOption(f"{param}: logprobs need response_format=json", param=param)
    return bool(given)


def _check_chunking(text: str | None, members: dict[str, str]) -> None:
    """Accept "auto" and server_vad as OpenAI's defaults describe it; both are what is done here."""
    param = "chunking_strategy"
    strategy = members | _read_strategy(text, param)
    if not strategy:
        return
    if strategy.pop("type", None) != "server_vad":
        raise InvalidOption(f"{param}[type]: must be server_vad", param=f"{param}[type]")
    for name, value in strategy.items():
        member = f"{param}[{name[:64]}]"
        if name not in _SERVER_VAD:
            raise InvalidOption(f"{member}: unknown or unsupported parameter", param=member)
        try:
            is_default = float(value) == _SERVER_VAD[name]
        except (TypeError, ValueError):
            is_default = False
        if not is_default:
            raise InvalidOption(
                f"{member}: only {_SERVER_VAD[name]:g} is supported here", param=member
            )


def _read_strategy(text: str | None, param: str) -> dict[str, Any]:
    if text is None or text == "auto":
        return {}
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        loaded = None
    if not isinstance(loaded, dict):
        raise InvalidOption(f"{param}: 'auto' or an object of type server_vad", param=param)
    return loaded


def _read_language(values: Mapping[str, str], lists: Mapping[str, list[str]]) -> str | None:
    candidates = lists.get("languages", [])
    if len(candidates) > 1 or (candidates and "language" in values):
        raise InvalidOption("languages[]: at most one language can be given", param="languages[]")
    return candidates[0] if candidates else values.get("language")


def _read_prompt(values: Mapping[str, str], lists: Mapping[str, list[str]]) -> str | None:
    """Return the prompt, the keywords at its end: models keep the last tokens that fit."""
    parts = [values.get("prompt", ""), ", ".join(lists.get("keywords", []))]
    return " ".join(part for part in parts if part) or None


def _read_temperature(values: Mapping[str, str]) -> float | None:
    """Return None for 0: OpenAI's 0 means greedy with fallback to higher temperatures."""
    text = values.get("temperature")
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise InvalidOption("temperature: a number from 0 to 1", param="temperature")
    return value or None
