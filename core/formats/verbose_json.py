"""`verbose_json`: every field of OpenAI's verbose transcription.

A segment also has its channel if there is one, and its language if it is not the transcript's.

Source: openai 3.57.0, types/audio/{transcription_verbose,transcription_segment,transcription_word}.
"""

import json
from typing import Any

from core.formats.base import Format
from core.formats.times import to_seconds
from core.transcript import Segment, Transcript

FRAMES_PER_S = 100
"""`seek` counts mel frames of 10 ms (openai/whisper, whisper/audio.py HOP_LENGTH).

There it is the start of the window that the segment was decoded in; here, where windows are cut in
pauses and a segment does not keep its own, it is the segment's start.
"""


def render(transcript: Transcript) -> str:
    """Return the document as one line of JSON; `words` only if any segment has them."""
    has_words = any(segment.words for segment in transcript.segments)
    return json.dumps(verbose_document(transcript, words=has_words), ensure_ascii=False)


def verbose_document(
    transcript: Transcript, *, segments: bool = True, words: bool = False
) -> dict[str, Any]:
    """Return OpenAI's fields, with a language code, and lists as asked for.

    What a model family does not tell (Qwen3-ASR gives no `no_speech_prob`) is null, not invented.
    """
    document: dict[str, Any] = {
        "task": transcript.task,
        "language": transcript.language,
        "duration": to_seconds(transcript.duration_ms),
        "text": transcript.text,
    }
    if segments:
        document["segments"] = [
            _segment(index, segment, transcript.language)
            for index, segment in enumerate(transcript.segments)
        ]
    if words:
        document["words"] = [
            {"word": word.text, "start": to_seconds(word.start_ms), "end": to_seconds(word.end_ms)}
            for segment in transcript.segments
            for word in segment.words
        ]
    return document


def _segment(index: int, segment: Segment, language: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": index,
        "seek": segment.start_ms * FRAMES_PER_S // 1000,
        "start": to_seconds(segment.start_ms),
        "end": to_seconds(segment.end_ms),
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }
    if segment.channel is not None:
        data["channel"] = segment.channel
    if segment.language not in (None, language):
        data["language"] = segment.language
    return data


VERBOSE_JSON = Format(
    name="verbose_json", media_type="application/json", extension=".json", render=render
)
