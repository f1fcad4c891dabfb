"""Server-sent events: frames, and a response that drops clients who do not read."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

import anyio
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

log = structlog.get_logger(__name__)

SEND_TIMEOUT_S = 30.0
RETRY_MS = 2000
HEARTBEAT = b": still here\n\n"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def frame(data: str, *, event: str | None = None, event_id: int | None = None) -> bytes:
    """Return one event; `data` must be one line (JSON is)."""
    head = f"id: {event_id}\n" if event_id is not None else ""
    head += f"event: {event}\n" if event is not None else ""
    return f"{head}data: {data}\n\n".encode()


def opening() -> bytes:
    """Return what tells a client how soon to come back."""
    return f"retry: {RETRY_MS}\n\n".encode()


class EventStream(Response):
    """Sends frames as they come.

    A client that takes nothing for `SEND_TIMEOUT_S` is cut off: what it missed lies in the
    database and Last-Event-ID brings it back. Nothing is buffered for it here.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        *,
        headers: Mapping[str, str] | None = None,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare.

        Args:
            on_end: Called at the end, also where the client left before the first frame was made.
        """
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._frames = frames
        self._on_end = on_end

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serve until the frames end or the client is gone."""
        try:
            await self._serve(receive, send)
        finally:
            if self._on_end is not None:
                await self._on_end()

    async def _serve(self, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await self._send_frames(send)
            tasks.cancel_scope.cancel()

    async def _send_frames(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            async with aclosing(self._frames) as frames:
                async for part in frames:
                    with anyio.fail_after(SEND_TIMEOUT_S):
                        await send({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            log.info("listener.dropped")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
