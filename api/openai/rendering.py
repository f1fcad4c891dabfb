"""Transcripts in OpenAI's answers, whole and as a stream of deltas."""

import json
from typing import Any

import structlog
from fastapi import Response
from fastapi.responses import JSONResponse

from api.openai.fields import AudioRequest
from core.formats import FORMATS
from core.formats.verbose_json import verbose_document
from core.languages import LANGUAGES
from core.logprobs import describe_logprobs, join_logprobs
from core.options import TaskKind
from core.transcript import Transcript, join_texts, joint

log = structlog.get_logger(__name__)

UNKNOWN_LANGUAGE = "unknown"
WARNINGS_HEADER = "X-Scriptorium-Warnings"
"""The transcript's warnings, for the formats whose body has no room for them too."""


def render_answer(transcript: Transcript, request: AudioRequest) -> Response:
    """Return the answer in the `response_format` asked for."""
    answer = _render_body(transcript, request)
    if transcript.warnings:
        answer.headers[WARNINGS_HEADER] = ", ".join(transcript.warnings)
    return answer


def _render_body(transcript: Transcript, request: AudioRequest) -> Response:
    if request.response_format == "json":
        document: dict[str, Any] = {"text": transcript.text}
        if request.has_logprobs:
            document["logprobs"] = _logprobs(transcript)
        return JSONResponse(document | _closing(transcript))
    if request.response_format == "verbose_json":
        document = verbose_document(
            transcript, segments=request.has_segments, words=request.has_words
        )
        document["language"] = _language_name(transcript)
        return JSONResponse(document | _closing(transcript))
    chosen = FORMATS[request.response_format]
    media_type = "text/plain; charset=utf-8" if chosen.name == "srt" else chosen.media_type
    return Response(chosen.render(transcript).encode(), headers={"Content-Type": media_type})


def _language_name(transcript: Transcript) -> str:
    """Return what OpenAI answers: the text's language by its English name, not its code."""
    if transcript.task == TaskKind.TRANSLATE:
        return LANGUAGES["en"]
    code = transcript.language or ""
    return LANGUAGES.get(code, code or UNKNOWN_LANGUAGE)


def _closing(transcript: Transcript) -> dict[str, Any]:
    """Return what OpenAI would bill, the length of the recording, and warnings if there are any."""
    closing: dict[str, Any] = {
        "usage": {"type": "duration", "seconds": transcript.duration_ms / 1000}
    }
    if transcript.warnings:
        closing["warnings"] = list(transcript.warnings)
    return closing


class DeltaWriter:
    """Turns a job's events into deltas whose concatenation is the final text.

    A worker may publish deltas as it decodes, segments when they are final, or both; whatever the
    deltas have not covered yet is sent when a segment or the end tells it. With log probabilities
    each delta is a segment, and its tokens' bytes join to it.
    """

    def __init__(self, *, has_logprobs: bool = False) -> None:
        self._has_logprobs = has_logprobs
        self._sent = ""
        self._known = ""
        self._num_segments = 0
        self._num_tokens = 0

    def on_delta(self, text: str) -> list[dict[str, Any]]:
        """Pass on a delta of the job."""
        return self._advance(self._sent + text, [])

    def on_segment(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the missing delta and the segment."""
        seam = joint(self._known, data["text"])
        self._known = join_texts((self._known, data["text"]))
        events = self._advance(self._known, _with_seam(data.get("logprobs", []), seam))
        events.append(
            {
                "type": "transcript.text.segment",
                "id": f"seg_{self._num_segments}",
                "start": data["start"],
                "end": data["end"],
                "text": data["text"],
                "speaker": "" if data.get("channel") is None else str(data["channel"]),
            }
        )
        self._num_segments += 1
        return events

    def on_end(self, transcript: Transcript) -> list[dict[str, Any]]:
        """Return what is missing and the one `done`."""
        logprobs = _logprobs(transcript) if self._has_logprobs else []
        events = self._advance(transcript.text, logprobs[self._num_tokens :])
        if self._sent != transcript.text:
            log.warning("stream.diverged", sent=len(self._sent), final=len(transcript.text))
        done: dict[str, Any] = {
            "type": "transcript.text.done",
            "text": transcript.text,
        } | _closing(transcript)
        if self._has_logprobs:
            done["logprobs"] = logprobs
        return [*events, done]

    def _advance(self, text: str, logprobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not text.startswith(self._sent) or text == self._sent:
            return []
        delta, self._sent = text[len(self._sent) :], text
        event: dict[str, Any] = {"type": "transcript.text.delta", "delta": delta}
        if self._has_logprobs:
            event["logprobs"] = logprobs
            self._num_tokens += len(logprobs)
        return [event]


def _logprobs(transcript: Transcript) -> list[dict[str, Any]]:
    return describe_logprobs(join_logprobs(transcript.segments))


def _with_seam(logprobs: list[dict[str, Any]], seam: str) -> list[dict[str, Any]]:
    """Return a segment's tokens with what stands between it and the text before."""
    if not logprobs or not seam:
        return logprobs
    first = logprobs[0]
    led = {"token": seam + first["token"], "bytes": [*seam.encode(), *first["bytes"]]}
    return [first | led, *logprobs[1:]]


def dump(event: dict[str, Any]) -> str:
    """Return an event as one line."""
    return json.dumps(event, ensure_ascii=False)
