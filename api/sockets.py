"""WebSockets that are refused before the handshake, with the errors of any other request."""

from fastapi import WebSocket

from api import problems
from core.errors import ScriptoriumError


async def deny(socket: WebSocket, exc: ScriptoriumError) -> None:
    """Answer with the HTTP error that tells of `exc`."""
    problem = problems.describe(exc)
    request_id = socket.scope["state"]["request_id"]
    response = problems.respond(problem, path=socket.url.path, request_id=request_id)
    await socket.send_denial_response(response)
