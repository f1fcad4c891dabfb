"""One client's live session: its events to the worker, the worker's to it, until either ends."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import anyio
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from api.context import ApiContext
from api.realtime import commands
from api.realtime.commands import Command, InvalidEvent
from api.realtime.config import Options
from api.realtime.ends import CLOSE_CODES, SessionEnded
from api.realtime.events import Renderer, dump_error, dump_event
from api.realtime.store import LiveStore
from api.realtime.uplink import Uplink
from api.sockets import BROKEN, GOING_AWAY, POLICY, TRY_LATER
from api.sse import SEND_TIMEOUT_S
from core.errors import InvalidOption, ScriptoriumError
from core.ids import new_id
from core.live import TICKS_HZ, Entry, Sent, Told

log = structlog.get_logger(__name__)

MAX_QUEUED = 2048
"""Messages of the worker that a client may lag behind."""
ENTRY_S = 1
"""Audio in one entry of the stream at most: a worker reads entries whole."""
BEATS_PER_LEASE = 3


class Connection:
    """Serves one accepted WebSocket; all of it belongs to the event loop.

    Attributes:
        id: The session's id in Redis.
    """

    def __init__(
        self,
        socket: WebSocket,
        context: ApiContext,
        store: LiveStore,
        *,
        key_id: UUID,
        options: Options,
        is_beta: bool,
    ) -> None:
        self.id = new_id().hex
        self._socket = socket
        self._key_id = key_id
        self._options = options
        self._store = store
        self._settings = settings = context.settings
        self._metrics = context.metrics
        self._renderer = Renderer(is_beta=is_beta)
        self._expires_at = int(time.time()) + settings.live_session_s
        self._has_worker = False
        self._uplink = Uplink(store, self.id, settings)
        self._messages: deque[dict[str, Any]] = deque()
        self._next_seq = 1
        self._has_news = asyncio.Event()
        self._loss: SessionEnded | None = None
        self._end: SessionEnded | None = None

    # As the hub sees it -----------------------------------------------------------------------

    def hear(self, message: bytes) -> None:
        """See `api.hub.LiveVoice`."""
        fields = json.loads(message)
        if fields["type"] == Told.HEARD:
            self._uplink.hear(fields["audio_ms"], fields["num_entries"])
        elif fields["seq"] != self._next_seq:
            self.lose()
        elif len(self._messages) >= MAX_QUEUED:
            self._lose(_too_slow())
        else:
            self._next_seq += 1
            self._messages.append(fields)
            self._has_news.set()
            if fields["type"] == Told.READY:
                self._uplink.mark_ready()

    def lose(self) -> None:
        """See `api.hub.LiveVoice`."""
        self._lose(SessionEnded("events_lost", "The connection to the worker broke; start again."))

    def _lose(self, loss: SessionEnded) -> None:
        self._loss = self._loss or loss
        self._has_news.set()

    # The session ------------------------------------------------------------------------------

    async def reserve(self) -> None:
        """Count the session; raises `LimitExceeded` if its key has too many."""
        limit = self._settings.live_sessions_per_key
        await self._store.reserve(self._key_id, self.id, limit=limit, now_s=time.time())

    async def serve(self) -> None:
        """Serve until the client leaves or the session ends; then free everything."""
        try:
            with self._metrics.live_sessions.track_inprogress():
                await self._serve()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(SEND_TIMEOUT_S):
                await self._clean_up()

    async def _serve(self) -> None:
        """Greet, then run all tasks; the first that ends ends all."""
        async with anyio.create_task_group() as tasks:

            async def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
                await self._guard(work)
                tasks.cancel_scope.cancel()

            if await self._guard(self._greet):
                for work in (self._receive, self._tell, self._beat, self._expire):
                    tasks.start_soon(run, work)

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run one of the tasks and keep why it ended; return whether nothing went wrong."""
        try:
            await work()
        except SessionEnded as exc:
            self._end = self._end or exc
        except ScriptoriumError as exc:
            self._end = self._end or SessionEnded(exc.code, str(exc))
        except WebSocketDisconnect:
            pass  # the client is gone
        else:
            return True
        return False

    async def _clean_up(self) -> None:
        end = self._end
        self._metrics.live_ended.labels(end.code if end else "client").inc()
        log.info("live.closed", session_id=self.id, error_code=end.code if end else None)
        try:
            await self._store.close(
                self._key_id,
                self.id,
                self._options.config.model,
                has_worker=self._has_worker,
            )
        except ScriptoriumError as exc:
            log.warning("live.not_closed", session_id=self.id, error=str(exc))  # the keys expire
        if end is not None and self._socket.client_state is WebSocketState.CONNECTED:
            is_ours = end.close_code != POLICY
            error = dump_error(end.code, str(end), event_id=end.event_id, is_ours=is_ours)
            try:
                await self._socket.send_text(error)
                await self._socket.close(end.close_code, end.code)
            except (WebSocketDisconnect, RuntimeError) as exc:  # gone meanwhile
                log.info("live.not_told", error=str(exc))

    async def _say(self, event: str) -> None:
        try:
            with anyio.fail_after(SEND_TIMEOUT_S):
                await self._socket.send_text(event)
        except TimeoutError as exc:
            raise _too_slow() from exc

    async def _greet(self) -> None:
        await self._say_session("created")

    async def _tell(self) -> None:
        """Send what the worker says."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            while self._messages:
                message = self._messages.popleft()
                self._has_worker = True
                if message["type"] == Told.ENDED:
                    code = message["code"]
                    close_code = CLOSE_CODES.get(code, BROKEN)
                    raise SessionEnded(code, message["message"], close_code)
                for event in self._renderer.render(message):
                    await self._say(event)
            if self._loss is not None:
                raise self._loss

    async def _expire(self) -> None:
        await asyncio.sleep(self._settings.live_session_s)
        raise SessionEnded(
            "session_expired",
            f"The session has lasted {self._settings.live_session_s} s, as long as it may.",
            POLICY,
        )

    async def _beat(self) -> None:
        """Keep the session's keys alive and see that somebody works on it."""
        interval_s = self._settings.live_lease_s / BEATS_PER_LEASE
        while True:
            await asyncio.sleep(interval_s)
            await self._store.keep_place(self._key_id, self.id, now_s=time.time())
            if self._uplink.started_s is not None:
                await self._check(self._uplink.started_s)

    async def _check(self, started_s: float) -> None:
        pulse = await self._store.beat(
            self.id, self._options.config.model, is_waiting=not self._has_worker
        )
        if not pulse.is_known:
            raise SessionEnded("session_lost", "Redis has forgotten the session; start again.")
        if self._has_worker and not pulse.has_worker:
            raise SessionEnded("worker_lost", "The worker of this session is gone; start again.")
        self._has_worker = pulse.has_worker
        waited_s = time.monotonic() - started_s
        if not self._has_worker and waited_s > self._settings.live_start_s:
            raise SessionEnded(
                "no_worker", f"No worker had room for this session in {waited_s:.0f} s.", TRY_LATER
            )

    # What the client says ---------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", GOING_AWAY))
            try:
                await self._follow(commands.parse_command(message.get("text")))
            except InvalidEvent as exc:
                await self._refuse(exc, exc.param, exc.event_id)

    async def _refuse(self, exc: ScriptoriumError, param: str | None, event_id: str | None) -> None:
        await self._say(dump_error(exc.code, str(exc), param=param, event_id=event_id))

    async def _follow(self, command: Command) -> None:
        match command.kind:
            case commands.UPDATE | commands.BETA_UPDATE:
                await self._update(command)
            case commands.APPEND:
                await self._append(command)
            case commands.COMMIT:
                entry = Entry(kind=Sent.COMMIT, event_id=command.event_id)
                await self._send(entry, event_id=command.event_id)
            case _:
                entry = Entry(kind=Sent.CLEAR, event_id=command.event_id)
                await self._send(entry, event_id=command.event_id)

    async def _update(self, command: Command) -> None:
        is_beta = command.kind == commands.BETA_UPDATE
        old = self._options
        try:
            update = old.update_beta if is_beta else old.update
            new = update(command.value)
            if self._uplink.started_s is not None and new.config.model != old.config.model:
                raise InvalidOption("model: cannot change once there was audio", param="model")
        except InvalidOption as exc:
            await self._refuse(exc, exc.param, command.event_id)
            return
        self._renderer.is_beta = is_beta
        self._options = new
        if self._uplink.started_s is not None and new.config != old.config:
            data = new.config.to_json().encode()
            await self._send(Entry(kind=Sent.CONFIG, data=data), event_id=command.event_id)
        await self._say_session("updated")

    async def _say_session(self, verb: str) -> None:
        is_beta = self._renderer.is_beta
        described = self._options.describe_beta() if is_beta else self._options.describe()
        session = {"id": f"sess_{self.id}", "expires_at": self._expires_at, **described}
        kind = "transcription_session" if is_beta else "session"
        await self._say(dump_event(f"{kind}.{verb}", session=session))

    async def _append(self, command: Command) -> None:
        data: bytes = command.value
        config = self._options.config
        sample_bytes = config.encoding.sample_bytes
        if len(data) % sample_bytes:
            raise InvalidEvent(
                f"audio: {len(data)} bytes; {config.encoding} has {sample_bytes} a sample",
                event_id=command.event_id,
                param="audio",
            )
        size = sample_bytes * config.rate_hz * ENTRY_S
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        if pieces:
            num_ticks = config.count_ticks(len(data))
            entries = [Entry(kind=Sent.AUDIO, data=piece) for piece in pieces]
            await self._send(*entries, num_ticks=num_ticks, event_id=command.event_id)
            self._metrics.live_audio_s.inc(num_ticks / TICKS_HZ)

    async def _send(self, *entries: Entry, num_ticks: int = 0, event_id: str | None) -> None:
        await self._uplink.send(
            *entries, config=self._options.config, num_ticks=num_ticks, event_id=event_id
        )


def _too_slow() -> SessionEnded:
    return SessionEnded("client_too_slow", "The client does not read its events.", POLICY)
