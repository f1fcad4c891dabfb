"""The HTTP interface as `scriptorium transcribe` uses it."""

import io
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from cli.waiting import Stopped
from core.errors import Forbidden, InvalidInput, ServiceUnavailable, Unauthenticated

TIMEOUT = httpx.Timeout(60.0, connect=10.0, pool=None)
_RETRY_AFTER_S = 2.0

MEDIA_CHANGED = "media_changed"


class Refused(Exception):
    """The server will not take this file, now or later.

    Attributes:
        code: The stable code of the API's error.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotNow(Exception):
    """The server is away, or asks to come back later; says nothing about the file.

    Attributes:
        after_s: When to ask again, in seconds.
        is_fault: Whether the server broke over this very request, so that patience may not help.
    """

    def __init__(
        self, message: str, *, after_s: float = _RETRY_AFTER_S, is_fault: bool = False
    ) -> None:
        super().__init__(message)
        self.after_s = after_s
        self.is_fault = is_fault


class Client:
    """One server and one key; may be used from several threads.

    Every call raises `NotNow` when it may be repeated, `Refused` when the server says no, and
    `Unauthenticated` or `Forbidden` when no call will work.

    Attributes:
        part_s: Monotonic time at which the last part of an upload had arrived.
    """

    def __init__(self, url: str, key: str | None, stop: threading.Event) -> None:
        self.url = check_address(url)
        self.stop = stop
        self.part_s = 0.0
        headers = {"Authorization": f"Bearer {check_key(key)}"} if key else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def get_model(self, name: str | None) -> str:
        """Return the name of a served model; None is the default.

        Raises:
            InvalidInput: The server has no such model; the message lists those it has.
            ServiceUnavailable: It is something else that answers.
        """
        try:
            names = [str(entry["id"]) for entry in self.object("GET", "/v1/models")["data"]]
        except (KeyError, TypeError) as exc:
            raise ServiceUnavailable(f"{self.url} does not answer as Scriptorium does.") from exc
        if name is not None and name not in names:
            raise InvalidInput(f"{self.url} serves no model {name!r}; it has {', '.join(names)}.")
        return name or names[0]

    def submit(self, path: Path, options: Mapping[str, str], *, reference: str) -> dict[str, Any]:
        """Upload a file, reading it as it goes, and return the new job.

        Raises:
            OSError: The file cannot be read.
            Stopped: The stop event was set meanwhile.
        """
        filename = readable_name(path)
        with _StoppableFile(path, self.stop) as file:
            return self.object(
                "POST",
                "/v1/jobs",
                data={**options, "reference": reference},
                files={"file": (filename, file)},
            )

    def get_job(self, job_id: str) -> dict[str, Any]:
        """Return a job."""
        return self.object("GET", f"/v1/jobs/{job_id}")

    def find_by_reference(self, reference: str) -> dict[str, Any] | None:
        """Return the newest job with this reference, or None."""
        page = self.object("GET", "/v1/jobs", params={"reference": reference, "limit": 1})
        jobs: list[dict[str, Any]] = page["data"]
        return jobs[0] if jobs else None

    def list_unfinished(self) -> list[dict[str, Any]]:
        """Return every job of this key that is queued or running."""
        found: list[dict[str, Any]] = []
        for status in ("queued", "running"):
            cursor: str | None = None
            while True:
                params: dict[str, Any] = {"status": status, "limit": 100}
                page = self.object(
                    "GET", "/v1/jobs", params=params | ({"cursor": cursor} if cursor else {})
                )
                found += page["data"]
                if (cursor := page.get("next_cursor")) is None:
                    break
        return found

    def get_transcript(self, job_id: str, format_name: str) -> bytes:
        """Return the transcript of a completed job in one of the API's formats."""
        params = {"format": format_name}
        return self.call("GET", f"/v1/jobs/{job_id}/transcript", params=params).content

    def retry(self, job_id: str) -> dict[str, Any]:
        """Queue a cancelled or failed job again; what was recognised is kept."""
        return self.object("POST", f"/v1/jobs/{job_id}/retry")

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        self.call("POST", f"/v1/jobs/{job_id}/cancel")

    def delete(self, job_id: str) -> None:
        """Delete a job, its media and its transcript on the server."""
        self.call("DELETE", f"/v1/jobs/{job_id}")

    def object(self, method: str, path: str, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the JSON object that the server answers with."""
        response = self.call(method, path, **request)
        try:
            data = response.json()
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise ServiceUnavailable(f"{self.url} does not answer as Scriptorium does.")
        return data

    def call(self, method: str, path: str, **request: Any) -> httpx.Response:  # noqa: ANN401
        """Send one request; `request` is what `httpx.Client.request` takes."""
        try:
            response = self._http.request(method, path, **request)
        except httpx.LocalProtocolError as exc:
            # h11 counted other bytes than the size said when the upload began.
            raise Refused(MEDIA_CHANGED, "the file changed while it was read") from exc
        except httpx.HTTPError as exc:
            raise NotNow(f"{self.url} does not answer: {exc}") from exc
        if response.is_success:
            return response
        raise explain(response)


def check_address(url: str) -> str:
    """Return a server's address without the slash at its end.

    Raises:
        InvalidInput: It is none.
    """
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"{url!r} is no address of a server; http://HOST:PORT is.")
    return url.strip().rstrip("/")


def check_key(key: str) -> str:
    """Return an API key without the blanks and line ends that copying adds.

    Raises:
        InvalidInput: It has characters that no key has.
    """
    stripped = key.strip()
    if not (stripped.isascii() and stripped.isprintable()) or " " in stripped:
        raise InvalidInput("The API key (--key or SCRIPTORIUM_API_KEY) has characters no key has.")
    return stripped


class _StoppableFile(io.FileIO):
    """A file whose reading ends when we are told to stop, in the middle of hours of upload."""

    def __init__(self, path: Path, stop: threading.Event) -> None:
        super().__init__(path, "r")
        self._stop = stop

    def read(self, size: int | None = -1, /) -> bytes:
        if self._stop.is_set():
            raise Stopped
        return super().read(size) or b""


def readable_name(path: Path) -> str:
    """Return a name for the server: file names may be any bytes but "/" and NUL."""
    name = path.name.encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in name)


def explain(response: httpx.Response) -> Exception:
    """Return the error that an answer other than success means."""
    status = response.status_code
    code, message = _read_problem(response)
    if status == 401:
        return Unauthenticated(f"{message} Give a key with --key or SCRIPTORIUM_API_KEY.")
    if status == 403:
        return Forbidden(message)
    if status in (408, 425, 429) or status >= 500:
        return NotNow(message, after_s=_retry_after_s(response), is_fault=status == 500)
    if 300 <= status < 400:
        return ServiceUnavailable(f"{response.url} redirects; name the server's final address.")
    return Refused(code, message)


def _read_problem(response: httpx.Response) -> tuple[str, str]:
    try:
        body = response.json()
        problem = body.get("error", body)
        return str(problem["code"]), str(problem.get("detail") or problem["message"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"http_{response.status_code}", f"the server answered {response.status_code}"


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return max(0.1, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return _RETRY_AFTER_S
