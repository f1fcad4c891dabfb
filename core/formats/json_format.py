"""`json`: the text, its segments and what is known of the recording, with times in seconds.

A superset of OpenAI's `json`, which has `text` alone (and which `api.openai` writes).
"""

import json
from typing import Any

from core.formats.base import Format
from core.formats.times import to_seconds
from core.logprobs import describe_logprobs, trim_logprobs
from core.transcript import Segment, Transcript, Word


def render(transcript: Transcript) -> str:
    """Return the document as one line of JSON."""
    document = {
        "text": transcript.text,
        "language": transcript.language,
        "duration": to_seconds(transcript.duration_ms),
        "task": transcript.task,
        "model": transcript.model,
        "segments": [_segment(i, segment) for i, segment in enumerate(transcript.segments)],
        "warnings": list(transcript.warnings),
    }
    return json.dumps(document, ensure_ascii=False)


def _segment(index: int, segment: Segment) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": index,
        "start": to_seconds(segment.start_ms),
        "end": to_seconds(segment.end_ms),
        "text": segment.text,
    }
    if segment.channel is not None:
        data["channel"] = segment.channel
    if segment.language is not None:
        data["language"] = segment.language
    if segment.words:
        data["words"] = [_word(word) for word in segment.words]
    if segment.token_logprobs:
        data["logprobs"] = describe_logprobs(trim_logprobs(segment.token_logprobs))
    return data


def _word(word: Word) -> dict[str, Any]:
    data: dict[str, Any] = {
        "word": word.text,
        "start": to_seconds(word.start_ms),
        "end": to_seconds(word.end_ms),
    }
    if word.probability is not None:
        data["probability"] = word.probability
    return data


JSON = Format(name="json", media_type="application/json", extension=".json", render=render)
