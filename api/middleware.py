"""Around every request: an id, bound log context, measurements, and the last line of defence."""

import re
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from api.metrics import Metrics
from api.problems import CLIENT_CLOSED_REQUEST, describe, limit_headers, respond
from core.ids import new_id

log = structlog.get_logger(__name__)

REQUEST_ID_HEADER = b"x-request-id"
_USABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET_PATHS = ("/health/", "/metrics")


class RequestContext:
    """ASGI middleware; a plain class, because `BaseHTTPMiddleware` hides disconnects."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            if scope["type"] == "http":
                await self._serve(scope, receive, send, request_id)
            else:
                try:
                    await self._app(scope, receive, send)
                except WebSocketDisconnect:  # before anybody could serve it
                    log.info("socket.left", path=scope["path"])

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), (REQUEST_ID_HEADER, request_id.encode())]
                numbers = scope["state"].get("limit_numbers", {})
                headers += [
                    (name.lower().encode(), value.encode())
                    for name, value in limit_headers(numbers).items()
                ]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as exc:
            log.exception("request.crashed")
            if not status:
                response = respond(describe(exc), path=scope["path"], request_id=request_id)
                await response(scope, receive, send_with_id)
        finally:
            elapsed_s = time.perf_counter() - started
            self._report(scope, status or CLIENT_CLOSED_REQUEST, elapsed_s)

    def _report(self, scope: Scope, status: int, elapsed_s: float) -> None:
        # The pattern, not the path: ids must not become label values.
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        self._metrics.observe_request(scope["method"], route, status, elapsed_s)
        if not scope["path"].startswith(_QUIET_PATHS):
            log.info(
                "request.finished",
                method=scope["method"],
                route=route,
                status=status,
                duration_ms=round(elapsed_s * 1000),
            )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER and _USABLE_ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return new_id().hex
