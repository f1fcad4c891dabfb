"""The thread that lets the model hear live sessions, all of them in one step."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from adapters.streaming import start_streaming
from adapters.streaming.base import StreamingEngine, StreamingSession, StreamUpdate
from core.errors import ScriptoriumError
from core.live import Told
from core.logprobs import describe_logprobs
from core.transcript import TokenLogprob, samples_to_ms
from workers.device import DeviceWatch
from workers.gate import ModelGate
from workers.live.session import Item, LiveSession
from workers.loaded import LoadedAdapters

log = structlog.get_logger(__name__)

GATHER_S = 0.1
"""How long audio is gathered before a step: sessions that come within it share the step."""


Engine = StreamingEngine[Any]


@dataclass(slots=True)
class _Turn:
    """An item in the model's thread."""

    session: LiveSession
    item: Item
    stream: StreamingSession
    is_finishing: bool = False
    parts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    def describe(self, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
        """Return what is told of tokens; nothing where nobody asked."""
        return {"logprobs": describe_logprobs(logprobs)} if self.item.config.logprobs else {}


class Stepper:
    """Runs until told to end; owns the adapters' streams."""

    def __init__(
        self,
        *,
        sessions: Callable[[], Sequence[LiveSession]],
        loaded: LoadedAdapters,
        gate: ModelGate,
        device: DeviceWatch,
    ) -> None:
        self._sessions = sessions
        self._loaded = loaded
        self._gate = gate
        self._device = device
        self._engines: dict[str, Engine] = {}
        self._turns: dict[str, _Turn] = {}
        self._news = threading.Event()
        self._ending = threading.Event()

    def wake(self) -> None:
        """Say that there is audio, or that a session came or went."""
        self._news.set()

    def end(self) -> None:
        """Make `run` return after the step of the moment."""
        self._ending.set()
        self._news.set()

    def run(self) -> None:
        """Step whenever there is something new."""
        while True:
            self._news.wait()
            if self._ending.wait(GATHER_S):
                return
            self._news.clear()
            try:
                while self._step_all() and not self._ending.is_set():
                    pass
            except Exception as exc:  # the thread must go on for the sessions to come
                log.exception("live.step_failed")
                self._device.look([exc])
                for session in self._sessions():
                    session.end("internal_error", f"The worker failed: {type(exc).__name__}.")

    def _step_all(self) -> bool:
        """Hand the new audio over and step each model once; return whether more may be due."""
        sessions = self._sessions()
        self._forget(sessions)
        is_busy = False
        for model in sorted({session.model for session in sessions}):
            of_model = [session for session in sessions if session.model == model]
            with self._gate.live():
                engine = self._find_engine(model, of_model)
                if engine is not None:
                    is_busy |= self._step_model(engine, of_model)
        for session in sessions:
            buffered = [t.stream.buffered_ms for t in self._turns.values() if t.session is session]
            session.tell_heard(sum(buffered))
        return is_busy

    def _forget(self, sessions: Sequence[LiveSession]) -> None:
        """Drop streams that nobody listens to, and models that nobody uses."""
        wanted = {item.id for session in sessions for item in session.items()}
        self._turns = {name: turn for name, turn in self._turns.items() if name in wanted}
        models = {session.model for session in sessions}
        if gone := [model for model in self._engines if model not in models]:
            with self._gate.live():
                for model in gone:
                    del self._engines[model]
                    self._loaded.unpin(model)

    def _find_engine(self, model: str, sessions: Sequence[LiveSession]) -> Engine | None:
        if model not in self._engines:
            try:
                self._engines[model] = start_streaming(self._loaded.pin(model))
            except TypeError as exc:
                self._loaded.unpin(model)
                self._refuse(sessions, "model_not_live", str(exc))
            except ScriptoriumError as exc:
                self._refuse(sessions, exc.code, str(exc))
        return self._engines.get(model)

    def _refuse(self, sessions: Sequence[LiveSession], code: str, message: str) -> None:
        log.warning("live.refused", error_code=code, error=message)
        for session in sessions:
            session.end(code, message)

    def _step_model(self, engine: Engine, sessions: Sequence[LiveSession]) -> bool:
        for session in sessions:
            session.tell_ready()
        turns = [
            turn
            for session in sessions
            for item in session.items()
            if (turn := self._feed(engine, session, item)) is not None
        ]
        if not turns:
            return False
        updates = self._step(engine, turns)
        for turn, update in zip(turns, updates, strict=True):
            self._tell(turn, update)
        return any(update is not None for update in updates)

    def _feed(self, engine: Engine, session: LiveSession, item: Item) -> _Turn | None:
        """Return the item's stream with its new audio, or None if it cannot have one."""
        turn = self._turns.get(item.id)
        if turn is None:
            config = item.config
            try:
                stream = engine.open(
                    language=config.language,
                    prompt=config.prompt,
                    with_logprobs=config.logprobs,
                )
            except ScriptoriumError as exc:
                self._fail(session, item, exc)
                return None
            turn = self._turns[item.id] = _Turn(session, item, stream)
        samples, is_ended = session.take_audio(item)
        for part in samples:
            turn.stream.push(part)
        if is_ended and not turn.is_finishing:
            turn.is_finishing = True
            turn.stream.finish()
        return turn

    def _step(
        self, engine: Engine, turns: Sequence[_Turn]
    ) -> Sequence[StreamUpdate | Exception | None]:
        """Step all; if that fails, each alone, so that a failure stays with its turn."""
        try:
            return engine.step([turn.stream for turn in turns])
        except Exception as exc:  # noqa: BLE001 - whatever a model raises must stay with its turn
            if len(turns) == 1:
                self._device.look([exc])
                return [exc]
            log.warning("live.isolated", num_turns=len(turns), error=str(exc))
            return [answer for turn in turns for answer in self._step(engine, [turn])]

    def _tell(self, turn: _Turn, update: StreamUpdate | Exception | None) -> None:
        if isinstance(update, Exception):
            self._fail(turn.session, turn.item, update)
        elif update is not None:
            if update.delta:
                turn.parts.append(update.delta)
                turn.logprobs += update.logprobs
                turn.session.voice.tell(
                    Told.DELTA,
                    item_id=turn.item.id,
                    delta=update.delta,
                    **turn.describe(update.logprobs),
                )
        elif turn.is_finishing:
            turn.session.finish(turn.item)
            self._turns.pop(turn.item.id)
            turn.session.voice.tell(
                Told.COMPLETED,
                item_id=turn.item.id,
                text="".join(turn.parts),
                audio_ms=samples_to_ms(turn.item.num_samples),
                **turn.describe(turn.logprobs),
            )

    def _fail(self, session: LiveSession, item: Item, exc: Exception) -> None:
        log.warning("live.item_failed", error=repr(exc))
        session.finish(item)
        self._turns.pop(item.id, None)
        code = exc.code if isinstance(exc, ScriptoriumError) else ScriptoriumError.code
        message = str(exc) if isinstance(exc, ScriptoriumError) else ScriptoriumError.title
        session.voice.tell(Told.FAILED, item_id=item.id, code=code, message=message)
