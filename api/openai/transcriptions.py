"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`, as OpenAI's SDKs call them.

Behind each call is an `interactive` job; who hangs up cancels it.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import anyio
from fastapi import APIRouter, Request, Response

from api import problems
from api.context import ApiContext
from api.deps import Caller, Context, Submitter, now
from api.idempotency import REPLAYED_HEADER, IdempotencyKey, check_key, parse_once
from api.job_events import follow
from api.openai.fields import (
    GRANULARITIES,
    INCLUDES,
    RESPONSE_FORMATS,
    AudioRequest,
    parse_audio_request,
)
from api.openai.rendering import DeltaWriter, dump, render_answer
from api.openai.waiters import Place
from api.openai.waiting import Outcome, get_result, give_up, take_up, wait
from api.sse import HEARTBEAT, EventStream, frame
from api.submissions import accept_upload
from api.uploads import Fields, in_thread, receive_form
from core.errors import ScriptoriumError, ServiceUnavailable
from core.events import EventType
from core.options import TaskKind
from lifecycle.idempotency import AlreadyAnswered

router = APIRouter(prefix="/v1/audio", tags=["OpenAI-compatible"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The transcript in `response_format`, or events with `stream=true`.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
            "text/vtt": {"schema": {"type": "string"}},
            "text/event-stream": {},
        },
    }
}
_TRANSLATION_FIELDS: dict[str, Any] = {
    "file": {"type": "string", "format": "binary"},
    "model": {"type": "string", "example": "whisper-1"},
    "prompt": {"type": "string"},
    "response_format": {"type": "string", "enum": list(RESPONSE_FORMATS)},
    "temperature": {"type": "number", "minimum": 0, "maximum": 1},
}
_TRANSCRIPTION_FIELDS: dict[str, Any] = _TRANSLATION_FIELDS | {
    "language": {"type": "string", "example": "en"},
    "timestamp_granularities[]": {
        "type": "array",
        "items": {"type": "string", "enum": list(GRANULARITIES)},
    },
    "include[]": {"type": "array", "items": {"type": "string", "enum": list(INCLUDES)}},
    "stream": {"type": "boolean"},
    "chunking_strategy": {
        "type": "string",
        "enum": ["auto"],
        "description": 'Or `{"type": "server_vad"}` as JSON, with OpenAI\'s own numbers only.',
    },
    "keywords[]": {"type": "array", "items": {"type": "string"}},
    "languages[]": {"type": "array", "items": {"type": "string"}, "maxItems": 1},
}


def _body(fields: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": fields,
        "required": ["file"],
        "additionalProperties": False,
    }
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    }


@router.post(
    "/transcriptions",
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra=_body(_TRANSCRIPTION_FIELDS),
)
async def create_transcription(
    request: Request,
    context: Context,
    caller: Submitter,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Transcribe a file and answer when it is done, or as it goes with `stream=true`."""
    return await _serve(request, context, caller, TaskKind.TRANSCRIBE, idempotency_key)


@router.post(
    "/translations",
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra=_body(_TRANSLATION_FIELDS),
)
async def create_translation(
    request: Request,
    context: Context,
    caller: Submitter,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Translate a file into English."""
    return await _serve(request, context, caller, TaskKind.TRANSLATE, idempotency_key)


async def _serve(
    request: Request, context: ApiContext, caller: Caller, task: TaskKind, key: str | None
) -> Response:
    check_key(key)

    def parse(fields: Fields) -> AudioRequest:
        return parse_audio_request(context.settings, task, fields)

    fields, upload = await receive_form(request, context, check=parse)
    wanted = parse(fields)
    once = parse_once(request, caller, key, {"fields": sorted(fields), "sha256": upload.sha256})
    submission = wanted.submission
    accept = partial(
        accept_upload, context, caller.key_id, upload, submission, now=now(), once=once
    )
    after = 0
    headers: dict[str, str] = {}
    place = await context.waiters.enter(once)
    async with AsyncExitStack() as leaving:
        leaving.push_async_callback(place.leave)
        try:
            job_id = (await in_thread(context.upload_threads, accept)).id
        except AlreadyAnswered as earlier:
            job_id = earlier.subject_id
            headers = {REPLAYED_HEADER: "true"}
            again = partial(take_up, context, caller.key_id, job_id)
            after = await anyio.to_thread.run_sync(again)
        awaited = _Awaited(key_id=caller.key_id, job_id=job_id, place=place, wanted=wanted)
        response = await _answer(request, context, awaited, after=after)
        if isinstance(response, EventStream):  # it goes on waiting, and leaves when it ends
            leaving.pop_all()
    response.headers.update(headers)
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class _Awaited:
    """A job and who waits for it."""

    key_id: UUID
    job_id: UUID
    place: Place
    wanted: AudioRequest


async def _answer(
    request: Request, context: ApiContext, awaited: _Awaited, *, after: int
) -> Response:
    """Wait for the job and answer with what it says; see `waiting.wait` for `after`."""
    wanted, key_id, job_id = awaited.wanted, awaited.key_id, awaited.job_id
    outcome = await wait(context, request, job_id, until_end=not wanted.is_stream, after=after)
    if outcome is Outcome.STARTED:
        return EventStream(_frames(context, awaited), on_end=awaited.place.leave)
    if outcome is not Outcome.ENDED:
        await give_up(context, key_id, job_id, awaited.place)
        raise ServiceUnavailable("The service is too busy to answer in time; try again later.")
    result = partial(get_result, context, key_id, job_id)
    transcript = await anyio.to_thread.run_sync(result)
    if wanted.is_stream:
        return EventStream(_frames(context, awaited), on_end=awaited.place.leave)
    return render_answer(transcript, wanted)


async def _frames(context: ApiContext, awaited: _Awaited) -> AsyncGenerator[bytes]:
    """Yield OpenAI's events for the job's; leaving early, for whatever reason, cancels the job."""
    key_id, job_id = awaited.key_id, awaited.job_id
    writer = DeltaWriter(has_logprobs=awaited.wanted.has_logprobs)
    has_ended = False
    try:
        with anyio.move_on_after(context.settings.sync_total_s):
            async with aclosing(follow(context, job_id)) as events:
                async for event in events:
                    if event is None:
                        yield HEARTBEAT
                        continue
                    data = json.loads(event.body)["data"]
                    for told in _translate(writer, event.type, data):
                        yield frame(dump(told), event=told["type"])
            has_ended = True
        if has_ended:
            result = partial(get_result, context, key_id, job_id)
            for told in writer.on_end(await anyio.to_thread.run_sync(result)):
                yield frame(dump(told), event=told["type"])
        else:
            raise ServiceUnavailable("The job did not end in time; it was cancelled.")
    except ScriptoriumError as exc:
        yield frame(dump(problems.openai_body(problems.describe(exc))), event="error")
    finally:
        if not has_ended:
            await give_up(context, key_id, job_id, awaited.place)


def _translate(
    writer: DeltaWriter, event_type: EventType, data: dict[str, Any]
) -> list[dict[str, Any]]:
    if event_type is EventType.TEXT_DELTA:
        return writer.on_delta(data["delta"])
    if event_type is EventType.SEGMENT:
        return writer.on_segment(data)
    return []
