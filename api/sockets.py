"""How WebSockets are refused before the handshake, and the codes they are closed with after it."""

from fastapi import WebSocket

from api import problems
from core.errors import ScriptoriumError

NORMAL, GOING_AWAY, POLICY, BROKEN, RESTARTING, TRY_LATER = 1000, 1001, 1008, 1011, 1012, 1013
"""Close codes. Source: https://www.iana.org/assignments/websocket/websocket.xhtml"""


async def deny(socket: WebSocket, exc: ScriptoriumError) -> None:
    """Answer with the HTTP error that tells of `exc`."""
    problem = problems.describe(exc)
    request_id = socket.scope["state"]["request_id"]
    response = problems.respond(problem, path=socket.url.path, request_id=request_id)
    await socket.send_denial_response(response)
