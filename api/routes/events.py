"""Events of a job, replayed and then live: server-sent events and WebSocket."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated
from uuid import UUID

import anyio
import structlog
from fastapi import APIRouter, Header, Query, Response, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from api.context import ApiContext
from api.deps import Context, JobId, Reader, choose_protocol, get_context, identify
from api.job_events import follow
from api.query import refuse_unknown
from api.sockets import NORMAL, POLICY, RESTARTING, deny
from api.sse import HEARTBEAT, SEND_TIMEOUT_S, EventStream, frame, opening
from core.db import read_session
from core.errors import InvalidOption, JobNotFound, ScriptoriumError
from core.keys import Scope
from lifecycle.jobs import get_job
from models import JobStatus

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1/jobs", tags=["events"])

MAX_SEQ = 2**53


@router.get(
    "/{job_id}/events",
    response_class=Response,
    responses={
        200: {
            "description": "Events; `id:` is the event's seq.",
            "content": {"text/event-stream": {}},
        },
        204: {"description": "Nothing comes after that event; do not connect again."},
    },
)
async def stream_events(
    context: Context,
    caller: Reader,
    job_id: JobId,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="Replay from this seq on.")] = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Follow a job: every event above `after` or Last-Event-ID once, in order, then live."""
    since = after if last_event_id is None else _parse_seq(last_event_id)
    look = partial(_is_over, context, caller.key_id, job_id, since)
    if await anyio.to_thread.run_sync(look):
        return Response(status_code=204)
    return EventStream(_frames(context, job_id, since))


@router.websocket("/{job_id}/ws")
async def follow_job(
    socket: WebSocket, job_id: str, last_event_id: Annotated[str | None, Header()] = None
) -> None:
    """Send the same events as JSON messages.

    Closes with 1000 after the last, with 1008 where the client does not read, and with 1012 when
    the server ends.
    """
    context = get_context(socket)
    try:
        known_id = _parse_job_id(job_id)
        await anyio.to_thread.run_sync(partial(_admit, context, socket, known_id))
        refuse_unknown(socket.query_params, {"after"})
        after = _parse_seq(socket.query_params.get("after", "0"), "after")
        since = after if last_event_id is None else _parse_seq(last_event_id)
    except ScriptoriumError as exc:
        await deny(socket, exc)
        return
    await socket.accept(choose_protocol(socket))
    end = (NORMAL, "")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, socket, tasks.cancel_scope)
        try:
            await _send_messages(context, socket, known_id, since)
            if context.hub.is_closing:
                end = (RESTARTING, "")
        except TimeoutError:
            log.info("listener.dropped")
            end = (POLICY, "client_too_slow")
        tasks.cancel_scope.cancel()
    if socket.client_state is WebSocketState.CONNECTED:
        with suppress(RuntimeError):  # its pings were not answered meanwhile
            await socket.close(*end)


async def _frames(context: ApiContext, job_id: UUID, after: int) -> AsyncGenerator[bytes]:
    yield opening()
    with context.metrics.listeners.track_inprogress():
        async with aclosing(follow(context, job_id, after=after, may_leave=True)) as events:
            async for event in events:
                if event is None:
                    yield HEARTBEAT
                else:
                    yield frame(event.body, event=event.type, event_id=event.seq)


async def _send_messages(context: ApiContext, socket: WebSocket, job_id: UUID, after: int) -> None:
    with context.metrics.listeners.track_inprogress():
        async with aclosing(follow(context, job_id, after=after, may_leave=True)) as events:
            async for event in events:
                if event is None:  # uvicorn pings by itself
                    continue
                try:
                    with anyio.fail_after(SEND_TIMEOUT_S):
                        await socket.send_text(event.body)
                except WebSocketDisconnect:
                    return


async def _watch(socket: WebSocket, scope: anyio.CancelScope) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
    scope.cancel()


def _admit(context: ApiContext, socket: WebSocket, job_id: UUID) -> None:
    caller = identify(context, socket)
    caller.require(Scope.READ)
    _check_job(context, caller.key_id, job_id)


def _check_job(context: ApiContext, key_id: UUID, job_id: UUID) -> None:
    with read_session(context.sessions) as session:
        get_job(session, key_id, job_id)


def _is_over(context: ApiContext, key_id: UUID, job_id: UUID, since: int) -> bool:
    """Whether nothing comes after `since`. Raises `JobNotFound` for another key's job."""
    with read_session(context.sessions) as session:
        job = get_job(session, key_id, job_id)
        return JobStatus(job.status).is_final and since >= job.last_seq


def _parse_seq(text: str, param: str = "Last-Event-ID") -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise InvalidOption(f"{param}: not a number this stream gave", param=param)
    return int(text)


def _parse_job_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as exc:
        raise JobNotFound(f"There is no job {text[:64]!r}.") from exc
