"""A server with a fake speech model for the command line, whose every request is seen."""

import asyncio
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.integration.api.servers import serving
from tests.integration.batches.conftest import Stack
from tests.support.processes import Process, free_port, wait_for
from tests.support.stack import environment, scriptorium

Answer = tuple[str, str, int]
"""Method, path and status."""


@dataclass
class Watched:
    """Passes requests on and notes the answers.

    Attributes:
        is_held: Whether a request waits before it is looked at, by method and path.
        is_lost: Whether its answer is replaced by a 503 after it was obeyed.
        num_open: Requests that have no answer yet.
    """

    app: ASGIApp
    answers: list[Answer] = field(default_factory=list)
    is_held: Callable[[str, str], bool] = lambda _method, _path: False
    is_lost: Callable[[str, str], bool] = lambda _method, _path: False
    num_open: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        self.num_open += 1
        try:
            while self.is_held(method, path):  # noqa: ASYNC110 - a test's condition has no event
                await asyncio.sleep(0.02)
            await self._pass_on(scope, receive, send)
        finally:
            self.num_open -= 1

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        is_lost = self.is_lost(method, path)

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.answers.append((method, path, message["status"]))
            if not is_lost:
                await send(message)

        await self.app(scope, receive, note)
        if is_lost:
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    def count(self, method: str, ending: str, *, status: int | None = None) -> int:
        return sum(
            each[0] == method and each[1].endswith(ending) and status in {None, each[2]}
            for each in self.answers
        )

    def arrived(self) -> Counter[str]:
        """How often each part or small upload was taken."""
        return Counter(p for m, p, status in self.answers if m == "PUT" and status == 204)


@dataclass
class Service:
    """The API on a port of its own, which it keeps over restarts, and one worker."""

    stack: Stack
    watched: Watched
    key: str
    port: int = field(default_factory=free_port)
    is_working: threading.Event = field(default_factory=threading.Event)
    _serving: ExitStack = field(default_factory=ExitStack)
    _ended: threading.Event = field(default_factory=threading.Event)
    _runs: list[Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._serving.enter_context(serving(self.watched, port=self.port))

    def stop(self) -> None:
        self._serving.close()

    def transcribe(self, folder: Path, *options: str, url: str | None = None) -> Process:
        """Begin a run; its log is beside the folder."""
        command = scriptorium(
            "transcribe", folder, "--server", url or self.url, "--key", self.key,
            "--data", folder.parent / "client", *options,
        )  # fmt: skip
        log = folder.parent / f"run.{len(list(folder.parent.glob('run.*')))}"
        run = Process("transcribe", command, log=log, env=environment())
        self._runs.append(run)
        return run

    def work(self) -> None:
        """Work until `end`, whenever that is wanted."""
        while not self._ended.is_set():
            if not (self.is_working.is_set() and self.stack.step()):
                self._ended.wait(0.02)

    def end(self) -> None:
        for run in self._runs:
            run.stop(signal.SIGKILL)
        self.watched.is_held = lambda _method, _path: False
        self._ended.set()
        self.stop()


@dataclass
class Proxy:
    """Forwards connections, and cuts some of them in the middle of what is sent.

    Attributes:
        cuts: After how many bytes from the client the next connections are cut that get so far.
    """

    target: int
    cuts: list[int] = field(default_factory=list)
    port: int = 0
    num_cut: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for source, sink in ((client, server), (server, client)):
                pump = self._send if source is client else self._answer
                threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    def _send(self, source: socket.socket, sink: socket.socket) -> None:
        num_bytes = 0
        with suppress(OSError):
            while data := source.recv(4096):
                num_bytes += len(data)
                with self._lock:
                    is_cut = bool(self.cuts) and num_bytes > self.cuts[0]
                    if is_cut:
                        self.cuts.pop(0)
                        self.num_cut += 1
                if is_cut:
                    break
                sink.sendall(data)
        _close(source, sink)

    def _answer(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        _close(source, sink)


@contextmanager
def proxying(target: int, *, cuts: list[int]) -> Iterator[Proxy]:
    """Provide a proxy to a loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(target, cuts=cuts, port=listener.getsockname()[1])
        thread = threading.Thread(target=proxy.serve, args=(listener,))
        thread.start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=10)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def finish(process: Process, *, timeout_s: float = 120) -> int:
    """Wait for the end of a run; return its exit code."""
    wait_for(lambda: process.popen.poll() is not None, what="the run ends", timeout_s=timeout_s)
    return process.popen.returncode
