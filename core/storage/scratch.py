"""Temporary files that outlive no process: what a killed one left is removed by the next.

The rule: a file belongs to whoever holds its lock (`flock`), which the kernel drops when the
process ends, however it ends. A file that nobody holds and that is older than a minute is left
over. The minute covers the instant between creating a file and locking it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

_MIN_AGE_S = 60.0


class Scratch:
    """A folder of temporary files; several processes may share it.

    Methods raise OSError as the file system does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder if it is missing, and remove leftovers."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.remove_leftovers()

    @contextmanager
    def new_file(self, *, suffix: str = "") -> Iterator[IO[bytes]]:
        """Provide an open, locked file; `name` is its path. It is removed unless it was moved."""
        with NamedTemporaryFile(
            dir=self.folder, suffix=suffix, delete=False, buffering=0
        ) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                yield handle
            finally:
                Path(handle.name).unlink(missing_ok=True)

    def remove_leftovers(self) -> int:
        """Remove files of processes that died; return how many."""
        return sum(_remove_if_left(path) for path in self.folder.iterdir())


def _remove_if_left(path: Path) -> bool:
    try:
        # A file's age is measured by the clock that stamped it.
        if time.time() - path.stat().st_mtime < _MIN_AGE_S:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:  # its owner was faster
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
