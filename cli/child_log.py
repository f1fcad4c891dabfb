"""What a child process prints: kept in a file, and its warnings shown."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

ShowLine = Callable[[str], None]

_MAX_BYTES = 20 * 1024**2
"""Size at which a log file becomes `.1` and a new one begins: two files a child at most."""

_TAIL_LINES = 20
_QUIET_S = 30.0
"""How long a warning is not shown again after it was: a server that is away logs it many times a
second. The file has them all."""

_SHOWN_LEVELS = frozenset({"warning", "error", "critical"})
_BORING = frozenset({"level", "event", "timestamp", "logger", "exception"})


class ChildLog:
    """One log file for a child over all its restarts, the previous run's kept beside it as `.1`."""

    def __init__(self, path: Path, *, show: ShowLine, is_verbose: bool = False) -> None:
        self.path = path
        self._show = show
        self._is_verbose = is_verbose
        self._shown_s: dict[str, float] = {}
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._rotate()

    def pump(self, stream: IO[bytes]) -> None:
        """Copy `stream` until its end; blocks, so give it a thread."""
        with stream:
            for raw in stream:
                self._take(raw.decode(errors="replace").rstrip("\n"))

    def tail(self) -> str:
        """Return the newest lines, for a message about a child that died."""
        with self._lock:
            return "\n".join(self._tail)

    def close(self) -> None:
        """Close the file; lines that still come are dropped."""
        with self._lock:
            self._file.close()

    def _take(self, line: str) -> None:
        with self._lock:
            self._tail.append(line)
            if not self._file.closed:
                if self._file.tell() > _MAX_BYTES:
                    self._file.close()
                    self._file = self._rotate()
                self._file.write(line + "\n")
                self._file.flush()
        if self._is_verbose:
            self._show(line)
        elif (complaint := find_complaint(line)) is not None and self._is_news(complaint):
            self._show(complaint)

    def _is_news(self, complaint: str) -> bool:
        kind, now_s = " ".join(complaint.split()[:2]), time.monotonic()
        if now_s - self._shown_s.get(kind, -_QUIET_S) < _QUIET_S:
            return False
        self._shown_s[kind] = now_s
        return True

    def _rotate(self) -> IO[str]:
        if self.path.exists():
            self.path.replace(self.path.with_name(self.path.name + ".1"))
        return self.path.open("w", encoding="utf-8")


def find_complaint(line: str) -> str | None:
    """Return a JSON log line of level warning or above as `event key=value …`, None for others."""
    if not line.startswith("{"):
        return None
    try:
        entry: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return None
    if entry.get("level") not in _SHOWN_LEVELS:
        return None
    details = [f"{key}={value}" for key, value in entry.items() if key not in _BORING]
    return " ".join([str(entry["level"]), str(entry.get("event", "")), *details])
