"""`scriptorium listen`: plays a recording or stdin into a live session and prints the text."""

import base64
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from cli.config import load_settings
from cli.data_dir import find_running
from cli.listen_source import PIECE_MS, pace, read_file, read_stdin, unhurried
from cli.listen_text import FAREWELL, Script
from cli.local_keys import find_local_key
from cli.waiting import StopSignal, stop_signals
from core.errors import (
    Forbidden,
    InvalidInput,
    ScriptoriumError,
    ServiceUnavailable,
    Unauthenticated,
)
from core.settings import Settings
from core.transcript import SAMPLE_RATE_HZ

EXIT_FAILED = 1
STDIN = "-"

_CONNECT_S = 20.0
_POLL_S = 0.2
_LAST_WORDS_S = 10.0
"""How long Ctrl-C waits for the text of what was said already."""
_AHEAD_MS = 10_000
"""With `--fast`, audio on its way at most: pings between server and client queue behind it."""
_TAKEN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The command line, as typed.

    Attributes:
        source: A path, or "-" for raw PCM16 on stdin at `rate_hz`.
        speed: How many times as fast as it was spoken; None is as fast as the server takes it.
    """

    source: str
    rate_hz: int
    model: str | None
    language: str | None
    prompt: str | None
    speed: float | None
    server: str | None
    key: str | None
    data: Path | None
    as_jsonl: bool


def run(request: Request) -> int:
    """Listen; returns the exit code: 0 all well, 1 something failed, 128 + n after signal n."""
    if request.source != STDIN and not Path(request.source).is_file():
        raise InvalidInput(f"{request.source}: there is no such file.")
    settings = load_settings(data_dir=request.data)
    url, key = _find_server(request, settings)
    with stop_signals() as stop, _connect(url, key) as socket:
        listening = _Listening(request, settings, socket, stop)
        listening.run()
    for failure in listening.failures:
        print(f"error: {failure}", file=sys.stderr)
    if stop.event.is_set():
        return 128 + stop.number
    return EXIT_FAILED if listening.failures else 0


class _Listening:
    """One session: a thread speaks, this one reads."""

    def __init__(
        self, request: Request, settings: Settings, socket: ClientConnection, stop: StopSignal
    ) -> None:
        self._request = request
        self._settings = settings
        self._socket = socket
        self._stop = stop
        self._script = Script(_write_nothing if request.as_jsonl else _write)
        self._gone = threading.Event()  # no more audio is wanted
        self._problem: ScriptoriumError | None = None

    @property
    def failures(self) -> list[str]:
        """Whatever went wrong."""
        own = [] if self._problem is None else [str(self._problem)]
        return [*self._script.failures, *own]

    def run(self) -> None:
        """Speak and read until all text is there, or the server ends it."""
        speaker = threading.Thread(target=self._speak, name="speaker", daemon=True)
        self._configure()
        speaker.start()
        try:
            self._read()
        except ConnectionClosed as exc:
            if not self.failures:
                self._script.failures.append(f"The server closed the session: {exc}.")
        finally:
            self._gone.set()
            self._socket.close()
            speaker.join(_LAST_WORDS_S)

    def _configure(self) -> None:
        rate_hz = self._request.rate_hz if self._request.source == STDIN else SAMPLE_RATE_HZ
        given = {
            "model": self._request.model,
            "language": self._request.language,
            "prompt": self._request.prompt,
        }
        transcription = {name: value for name, value in given.items() if value is not None}
        audio = {
            "format": {"type": "audio/pcm", "rate": rate_hz},
            "transcription": transcription,
            "turn_detection": {"type": "server_vad"},
        }
        session = {"type": "transcription", "audio": {"input": audio}}
        self._send("session.update", session=session)

    def _read(self) -> None:
        patience_s = _LAST_WORDS_S
        while not self._script.is_complete and not self._script.failures:
            try:
                message = self._socket.recv(timeout=_POLL_S)
            except TimeoutError:
                if self._stop.event.is_set():
                    patience_s -= _POLL_S
                if patience_s <= 0:
                    return
                continue
            event = json.loads(message)
            if self._request.as_jsonl:
                print(json.dumps(event, ensure_ascii=False), flush=True)
            self._script.follow(event)

    def _speak(self) -> None:
        """Send the audio, then say that it was all; what breaks is told by `_read`."""
        try:
            for piece in self._pieces():
                if self._stop.event.is_set() or self._gone.is_set():
                    break
                self._send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())
            self._send("input_audio_buffer.commit", event_id=FAREWELL)
        except ConnectionClosed:
            pass
        except (ScriptoriumError, OSError) as exc:
            self._problem = exc if isinstance(exc, ScriptoriumError) else InvalidInput(str(exc))
            self._socket.close()

    def _pieces(self) -> Iterator[bytes]:
        request, stop = self._request, self._stop.event
        if request.source == STDIN:
            return read_stdin(request.rate_hz, stop)
        pieces = read_file(Path(request.source), self._settings)
        if request.speed is None:
            return unhurried(pieces, self._is_taken, _AHEAD_MS // PIECE_MS)
        return pace(pieces, request.speed, stop)

    def _is_taken(self) -> bool:
        """Wait until the server has read all that was sent: it answers a ping in its order."""
        answered = self._socket.ping()
        for _ in range(int(_TAKEN_S / _POLL_S)):
            if answered.wait(_POLL_S):
                return True
            if self._stop.event.is_set() or self._gone.is_set():
                return False
        raise ServiceUnavailable("The server takes no more audio.")

    def _send(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON of many shapes
        self._socket.send(json.dumps({"type": kind, **fields}))


def _find_server(request: Request, settings: Settings) -> tuple[str, str | None]:
    """Return the server that was named, or the one that runs on the data directory, and a key."""
    if request.server is not None:
        return request.server.rstrip("/"), request.key
    running = find_running(settings.data_path)
    if running is None:
        raise InvalidInput(
            f"No `scriptorium up` runs on {settings.data_path}; start it, or name a --server."
        )
    return running.url, request.key or find_local_key(settings.data_path)


@contextmanager
def _connect(url: str, key: str | None) -> Iterator[ClientConnection]:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("http", "https"):
        raise InvalidInput(f"{url} is no address of a server; it begins with http:// or https://.")
    address = f"{scheme.replace('http', 'ws')}://{rest}/v1/realtime?intent=transcription"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with ExitStack() as cleanup:
        try:
            connecting = connect(address, additional_headers=headers, open_timeout=_CONNECT_S)
            socket = cleanup.enter_context(connecting)
        except InvalidStatus as exc:
            raise _explain(exc) from exc
        except InvalidURI as exc:
            raise InvalidInput(f"{url} is no address of a server: {exc}") from exc
        except (OSError, InvalidHandshake, TimeoutError) as exc:
            raise ServiceUnavailable(f"{url} does not answer: {exc}") from exc
        yield socket


def _explain(exc: InvalidStatus) -> ScriptoriumError:
    status = exc.response.status_code
    try:
        message = str(json.loads(exc.response.body or b"")["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the server answered {status}"
    if status == 401:
        return Unauthenticated(f"{message} Give a key with --key or SCRIPTORIUM_API_KEY.")
    if status == 403:
        return Forbidden(message)
    return ServiceUnavailable(message) if status == 429 or status >= 500 else InvalidInput(message)


def _write(text: str) -> None:
    print(text, end="", flush=True)


def _write_nothing(_text: str) -> None:
    """Stand in for the text where events are printed."""
