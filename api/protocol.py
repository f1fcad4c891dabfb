"""HTTP/1.1 as the server speaks it, where the application is not asked."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.problems import Problem, respond

_SHOWN_BYTES = 200


class ProblemProtocol(HttpToolsProtocol):
    """uvicorn's, except that what it refuses itself is a problem like every other refusal.

    That is what is no HTTP, and a URL beyond 64 KiB.
    """

    def send_400_response(self, msg: str) -> None:
        """Answer and hang up; see the base class."""
        path = (self.url or b"").partition(b"?")[0][:_SHOWN_BYTES].decode("latin-1")
        problem = Problem(
            status=400,
            code="invalid_http",
            title="The request is no HTTP/1.1, or its URL is too long",
            detail=msg,
        )
        response = respond(problem, path=path, request_id=None)
        head = [b"HTTP/1.1 400 Bad Request", b"connection: close"]
        head += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))
        self.transport.close()
