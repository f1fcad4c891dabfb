"""What every SQLite file of ours needs at its start."""

import sqlite3
import time

BUSY_TIMEOUT_S = 30.0
_BUSY_WAIT_S = 0.01


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch a file to write-ahead logging, which it then stays in.

    SQLite does not wait here for who is just beginning to write a new file, since each would hold
    what the other wants; so two processes that start at once would fail. This one asks again.

    Raises:
        sqlite3.OperationalError: The file is still locked after `BUSY_TIMEOUT_S`.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_BUSY_WAIT_S)
        else:
            return
