"""`WS /v1/realtime?intent=transcription`: live audio, as OpenAI's clients speak it."""

from functools import partial

import anyio
from fastapi import APIRouter, WebSocket

from api.context import ApiContext
from api.deps import Caller, admit_socket, get_context, offered_protocols
from api.realtime.config import Options
from api.realtime.connection import Connection
from api.realtime.store import LiveStore
from api.sockets import deny
from core.errors import InvalidOption, ScriptoriumError, ServiceUnavailable
from core.keys import Scope

router = APIRouter(prefix="/v1/realtime", tags=["OpenAI-compatible"])

PROTOCOL = "realtime"
HUB_WAIT_S = 5.0
_BETA_HEADER, _BETA_PROTOCOL = "realtime=v1", "openai-beta.realtime-v1"


@router.websocket("")
async def transcribe_live(
    socket: WebSocket, intent: str | None = None, model: str | None = None
) -> None:
    """Transcribe audio while it is spoken; what is refused at once is an HTTP error."""
    context = get_context(socket)
    store: LiveStore = socket.app.state.live_store
    try:
        caller, options = await _admit(context, socket, intent, model)
        with store.enter(max_open=context.settings.live_connections):
            if not await context.hub.wait_connected(timeout_s=HUB_WAIT_S):
                raise ServiceUnavailable("Redis does not answer.")
            protocols = offered_protocols(socket)
            is_beta = socket.headers.get("openai-beta") == _BETA_HEADER
            connection = Connection(
                socket,
                context,
                store,
                key_id=caller.key_id,
                options=options,
                is_beta=is_beta or _BETA_PROTOCOL in protocols,
            )
            await connection.reserve()
            with context.hub.attend(connection.id, connection):
                await socket.accept(PROTOCOL if PROTOCOL in protocols else None)
                await connection.serve()
    except ScriptoriumError as exc:
        await deny(socket, exc)


async def _admit(
    context: ApiContext, socket: WebSocket, intent: str | None, model: str | None
) -> tuple[Caller, Options]:
    admit = partial(admit_socket, context, socket, Scope.SUBMIT)
    caller = await anyio.to_thread.run_sync(admit)
    if intent != "transcription":
        raise InvalidOption("intent: only `intent=transcription` is served here", param="intent")
    return caller, Options.default(context.settings, model)
