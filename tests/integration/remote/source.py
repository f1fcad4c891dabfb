"""A file server that breaks off, forgets ranges, redirects and lies on request."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Source:
    """Serves `body`.

    Attributes:
        break_after: Bytes after which each of the first `breaks` answers stops.
        ranges: Whether Range is honoured.
        chunked: Send without a Content-Length.
        encoding: Content-Encoding that the answer claims.
        status: Answered instead of 200.
        refusal_headers: Go with `status`.
        location: Where a redirect leads.
        requests: Headers of every request, lower case, by path.
    """

    port: int = 0
    body: bytes = b""
    content_type: str = "audio/wav"
    etag: str | None = '"one"'
    break_after: int | None = None
    breaks: int = 0
    ranges: bool = True
    declared: bool = True
    encoding: str | None = None
    status: int = 200
    refusal_headers: dict[str, str] = field(default_factory=dict)
    location: str | None = None
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/folder/Aufnahme%20%C3%A4.wav?signature=secret"

    def refuse(self, path: str) -> tuple[int, dict[str, str]] | None:
        """Return status and headers of an answer without the body, if there is to be one."""
        if self.location is not None and "target" not in path:
            return 302, {"location": self.location}
        return None if self.status == 200 else (self.status, self.refusal_headers)


@contextlib.contextmanager
def serving() -> Iterator[Source]:  # noqa: C901
    source = Source()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {k.lower(): v for k, v in self.headers.items()}
            source.requests.append((self.path, headers))
            if (refusal := source.refuse(self.path)) is not None:
                status, others = refusal
                self.send_response(status)
                for name, value in {"content-length": "0", **others}.items():
                    self.send_header(name, value)
                self.end_headers()
                return
            body = source.body
            is_same = headers.get("if-range") in (None, source.etag)
            if "range" in headers and source.ranges and is_same:
                first, _, last = headers["range"].removeprefix("bytes=").partition("-")
                start, total = int(first), len(body)
                body = body[start : int(last) + 1 if last else None]
                self.send_response(206)
                self.send_header("content-range", f"bytes {start}-{start + len(body) - 1}/{total}")
            else:
                self.send_response(200)
            self.send_header("content-type", source.content_type)
            for name, value in (("content-encoding", source.encoding), ("etag", source.etag)):
                if value is not None:
                    self.send_header(name, value)
            if source.declared:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            if source.breaks > 0 and source.break_after is not None:
                source.breaks -= 1
                body = body[: source.break_after]
            with contextlib.suppress(OSError):
                self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    source.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield source
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
