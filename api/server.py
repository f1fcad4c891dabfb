"""The HTTP server: uvicorn, which tells those who follow jobs that it ends."""

import socket

import uvicorn
from fastapi import FastAPI

from api.protocol import ProblemProtocol

GRACE_S = 5
"""How long answers that are under way may take once the server is told to end."""


class ApiServer(uvicorn.Server):
    """Ends streams of events first: they would last as long as their jobs, and be cut off.

    Their clients come back with Last-Event-ID, and miss nothing.
    """

    def __init__(self, app: FastAPI, **options: object) -> None:
        """Prepare to serve `app`.

        Args:
            options: More of uvicorn's.
        """
        config = uvicorn.Config(
            app,
            http=ProblemProtocol,
            timeout_graceful_shutdown=GRACE_S,
            **options,  # type: ignore[arg-type]
        )
        super().__init__(config)
        self._hub = app.state.context.hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See the base class; called in the event loop."""
        self._hub.close()
        await super().shutdown(sockets)
