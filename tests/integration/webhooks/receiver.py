"""A webhook receiver that misbehaves on request."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers requests by `answers` in turn, the last one for ever.

    An answer is (status, headers, body); status 0 means never to answer, -1 to drip a byte of the
    status line every 50 ms.
    """

    port: int = 0
    answers: list[tuple[int, dict[str, str], bytes]] = field(
        default_factory=lambda: [(204, {}, b"")]
    )
    requests: list[Request] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def answer(self, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self.answers = [(status, headers or {}, b"") for status in statuses]


@contextlib.contextmanager
def serving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with receiver.lock:
                receiver.requests.append(
                    Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                )
                status, headers, answer = (
                    receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                )
            if status == 0:
                receiver.closing.wait(30)
                return
            if status == -1:
                with contextlib.suppress(OSError):
                    for byte in b"HTTP/1.1 200 " + b"O" * 600:
                        self.wfile.write(bytes([byte]))
                        if receiver.closing.wait(0.05):
                            return
                return
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
