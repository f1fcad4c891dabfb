"""Why a live session ends, and how its socket is closed then."""

from api.sockets import BROKEN, RESTARTING, TRY_LATER

CLOSE_CODES = {"worker_stopping": RESTARTING, "no_worker": TRY_LATER}
"""Of what a worker says; everything else is `BROKEN`."""


class SessionEnded(Exception):
    """The session cannot go on; the client is told why."""

    def __init__(
        self, code: str, message: str, close_code: int = BROKEN, *, event_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.close_code = close_code
        self.event_id = event_id
