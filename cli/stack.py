"""Everything of Scriptorium on this machine, started together and ended together."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
from sqlalchemy.exc import OperationalError

from cli import data_dir, embedded_redis, launch, local_keys, processes
from cli.data_dir import RunningStack
from cli.database import explain
from cli.exposure import check_exposure
from cli.supervisor import Report, Supervisor
from cli.waiting import StopSignal, wait_until
from core.errors import InvalidInput, ServiceUnavailable
from core.queues import make_celery
from core.settings import Settings, child_environment

UP = "up"
TRANSCRIBE = "transcribe"
"""Kinds of owners of a data directory: the commands that start a stack."""

_REDIS_START_S = 20.0
_READY_S = 180.0
"""Imports and weights from a cold disk on a busy machine; a crash loop ends the wait sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCheckpoint:
    """A checkpoint that the stack serves, as `scriptorium models fetch --json` tells."""

    name: str
    adapter: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running Scriptorium.

    Attributes:
        running: Where it answers and what it serves.
        local_key: The key of this data directory, for `scriptorium transcribe`.
        first_key: A key for people, made because there was none yet; else None.
    """

    running: RunningStack
    local_key: str
    first_key: str | None
    supervisor: Supervisor


@contextmanager
def running_stack(
    settings: Settings,
    *,
    kind: str,
    host: str,
    port: int,
    workers: int,
    stop: StopSignal,
    report: Report,
    is_verbose: bool = False,
) -> Iterator[Stack]:
    """Start the whole stack, provide it once it is ready, and leave nothing running.

    Args:
        kind: `UP` or `TRANSCRIBE`.
        port: 0 chooses a free one.
        workers: Recognising processes for each adapter.
        report: Gets warnings of the children.

    Raises:
        InvalidInput: The address cannot be used.
        AlreadyRunning: Another stack owns the data directory.
        ServiceUnavailable: Something did not start; the message says what and why.
        Stopped: A signal came before it was ready.
    """
    check_exposure(host, is_auth_on=settings.auth)
    with ExitStack() as cleanup:
        cleanup.enter_context(data_dir.own(settings.data_path, kind=kind))
        listener = cleanup.enter_context(_bind(host, port))
        supervisor = Supervisor(
            log_dir=settings.data_path / "logs", report=report, is_verbose=is_verbose
        )
        stop.at_once = supervisor.kill
        cleanup.callback(supervisor.stop)
        cleanup.callback(listener.close)  # before the children end: refuse, rather than hang
        with _looking_up_models(settings, stop) as wait_models:
            settings = _with_redis(settings, supervisor, cleanup, stop)
            local_keys.ensure_seal(settings)
            _migrate(settings)
            keys = local_keys.ensure_keys(settings, is_first_wanted=kind == UP and settings.auth)
            served = wait_models()
        url = _url(listener)
        specs = processes.plan_processes(
            settings,
            adapters=sorted({model.adapter for model in served}),
            workers=workers,
            listen_fd=listener.fileno(),
        )
        for spec in specs:
            supervisor.start(spec)
        _wait_ready(
            settings, url, {s.name for s in specs if s.stage == processes.WORK}, supervisor, stop
        )
        supervisor.settle()
        running = RunningStack(
            pid=os.getpid(), kind=kind, url=url, revisions={m.name: m.revision for m in served}
        )
        cleanup.enter_context(data_dir.announced(settings.data_path, running))
        yield Stack(
            running=running, local_key=keys.local, first_key=keys.first, supervisor=supervisor
        )


@contextmanager
def _bind(host: str, port: int) -> Iterator[socket.socket]:
    """Bind here, once: a port in use shows before anything starts, and restarts keep the port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
    except OSError as exc:
        raise InvalidInput(f"Cannot listen on {host}: {exc.strerror or exc}.") from exc
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as exc:
            raise InvalidInput(
                f"Cannot listen on {host}:{port}: {exc.strerror or exc}. Choose another --port."
            ) from exc
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _with_redis(
    settings: Settings, supervisor: Supervisor, cleanup: ExitStack, stop: StopSignal
) -> Settings:
    """Start the bundled Redis unless the settings name one; return settings that name it."""
    if settings.redis_url is None:
        path = cleanup.enter_context(embedded_redis.socket_path(settings.data_path))
        path.unlink(missing_ok=True)  # a crash leaves the file; we own the directory
        supervisor.start(
            embedded_redis.plan_server(
                settings.data_path,
                path,
                stage=processes.BROKER,
                environment=child_environment(settings),
            )
        )
        given = {name: getattr(settings, name) for name in settings.model_fields_set}
        settings = Settings(**given | {"redis_url": f"unix://{path}"})
    wait_until(
        lambda: embedded_redis.answers(settings.redis),
        what="Redis did not answer",
        timeout_s=_REDIS_START_S,
        stop=stop.event,
        find_failure=supervisor.find_failure,
    )
    return settings


def _migrate(settings: Settings) -> None:
    from migrations.run import migrate

    try:
        migrate(settings)
    except OperationalError as exc:
        raise ServiceUnavailable(explain(exc)) from exc


@contextmanager
def _looking_up_models(
    settings: Settings, stop: StopSignal
) -> Iterator[Callable[[], list[ServedCheckpoint]]]:
    """Fetch missing checkpoints in a child, meanwhile; provide a call that waits for the answer.

    A child, because it can be stopped in the middle of a download.
    """
    process = subprocess.Popen(  # noqa: S603 - our own program
        [
            *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid())),
            *processes.own_command("models", "fetch", "--json"),
        ],
        env=child_environment(settings, log_level="warning"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )

    def wait_models() -> list[ServedCheckpoint]:
        out = b""
        while True:
            stop.check()
            try:
                out, _ = process.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                continue
        if process.returncode != 0:
            raise ServiceUnavailable("The checkpoints are not there; see the message above.")
        return [
            ServedCheckpoint(name=m["name"], adapter=m["adapter"], revision=m["revision"])
            for m in json.loads(out)
        ]

    with process:
        try:
            yield wait_models
        finally:
            process.kill()


def _wait_ready(
    settings: Settings, url: str, workers: set[str], supervisor: Supervisor, stop: StopSignal
) -> None:
    wait_until(
        lambda: _is_ready(url),
        what="The API did not become ready",
        timeout_s=_READY_S,
        stop=stop.event,
        find_failure=supervisor.find_failure,
    )
    control = make_celery(settings.redis).control

    def all_answer() -> bool:
        replies = control.ping(timeout=0.5) or []
        names = {name.split("@")[0] for reply in replies for name in reply}
        return workers <= names

    wait_until(
        all_answer,
        what="The workers did not become ready",
        timeout_s=_READY_S,
        stop=stop.event,
        find_failure=supervisor.find_failure,
    )


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
