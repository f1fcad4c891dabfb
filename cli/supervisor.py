"""Keeps child processes alive, and ends all of them in order."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from cli import launch
from cli.child_log import ChildLog

Report = Callable[[str, str], None]
"""Called from any thread with a child's name and a line for people."""

_STABLE_S = 30.0
"""A child that lived this long has started well: its next death counts as the first."""

_BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_EARLY_DEATHS = 3
"""Deaths in a row before everything was ready after which starting is given up."""

_KILLED_S = 5.0
"""How long the kernel may take to remove a process after SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A process to keep alive.

    Attributes:
        command: Absolute path of the program and its arguments.
        stage: Children are stopped by stage, lowest first; those of one stage together.
        grace_s: How long it may take to end after SIGTERM before its group is killed.
        pass_fds: Open file descriptors that it inherits.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stage: int
    grace_s: float
    pass_fds: tuple[int, ...] = field(default=())


def backoff_s(deaths: int) -> float:
    """Return how long to wait before the restart after `deaths` deaths in a row (from 1)."""
    return _BACKOFF_S[min(deaths, len(_BACKOFF_S)) - 1]


class Supervisor:
    """Children that live as long as this object is not stopped.

    Each child has a thread that starts it, waits for its end and starts it again: Linux ties the
    parent-death signal to the thread that forked, so that thread must outlive the child. Each child
    leads a process group of its own, so that Ctrl-C in a terminal reaches only the supervisor and
    what a child leaves behind can be found.
    """

    def __init__(self, *, log_dir: Path, report: Report, is_verbose: bool = False) -> None:
        self._log_dir = log_dir
        self._report = report
        self._is_verbose = is_verbose
        self._keepers: list[_Keeper] = []

    def start(self, spec: ChildSpec) -> None:
        """Start a child and keep it alive from now on."""
        log = ChildLog(
            self._log_dir / f"{spec.name}.log",
            show=lambda line: self._report(spec.name, line),
            is_verbose=self._is_verbose,
        )
        keeper = _Keeper(spec, log, self._report)
        self._keepers.append(keeper)
        keeper.start()

    def settle(self) -> None:
        """Say that everything is ready: from now on no child is given up."""
        for keeper in self._keepers:
            keeper.is_settled.set()

    def find_failure(self) -> str | None:
        """Return why starting cannot succeed any more, or None."""
        return next((k.failure for k in self._keepers if k.failure is not None), None)

    def pids(self) -> dict[str, int]:
        """Return the process ids of the living children by name."""
        return {k.spec.name: pid for k in self._keepers if (pid := k.pid) is not None}

    def stop(self) -> None:
        """End all children stage by stage; returns when none is left. May be called again."""
        ordered = sorted(self._keepers, key=lambda keeper: keeper.spec.stage)
        for _, stage in groupby(ordered, key=lambda keeper: keeper.spec.stage):
            _stop_together(list(stage))
        self._keepers.clear()

    def kill(self) -> None:
        """Kill everything at once; safe to call from a signal handler."""
        for keeper in self._keepers:
            keeper.kill()


class _Keeper(threading.Thread):
    """The thread that owns one child."""

    def __init__(self, spec: ChildSpec, log: ChildLog, report: Report) -> None:
        super().__init__(name=f"keeper-{spec.name}", daemon=True)
        self.spec = spec
        self.log = log
        self.is_settled = threading.Event()
        self.failure: str | None = None
        self._report = report
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # no start after the decision to stop
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def run(self) -> None:
        deaths = 0
        while (process := self._spawn()) is not None:
            started = time.monotonic()
            code = process.wait()
            _kill_group(process.pid)
            if self._stopping.is_set():
                break
            deaths = 1 if time.monotonic() - started >= _STABLE_S else deaths + 1
            if self._give_up(deaths, code):
                break
            self._report(
                self.spec.name,
                f"ended with {_describe(code)}; starting it again in {backoff_s(deaths):g} s",
            )
            self._stopping.wait(backoff_s(deaths))
        self.log.close()

    def terminate(self) -> None:
        """Ask the child to end, and start it no more."""
        with self._lock:
            self._stopping.set()
            if (pid := self.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the child and all it started, and start it no more."""
        self._stopping.set()
        if (pid := self.pid) is not None:
            _kill_group(pid)

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(  # noqa: S603 - commands come from cli.stack
                [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *self.spec.command],
                env=dict(self.spec.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=self.spec.pass_fds,
                start_new_session=True,
            )
        threading.Thread(target=self.log.pump, args=(self._process.stdout,), daemon=True).start()
        return self._process

    def _give_up(self, deaths: int, code: int) -> bool:
        if self.is_settled.is_set() or deaths < _EARLY_DEATHS:
            return False
        self.failure = (
            f"{self.spec.name} ended {deaths} times while starting, last with {_describe(code)}. "
            f"Its log {self.log.path} ends with:\n{self.log.tail()}"
        )
        return True


def _stop_together(keepers: Sequence[_Keeper]) -> None:
    for keeper in keepers:
        keeper.terminate()
    asked = time.monotonic()
    for keeper in keepers:
        keeper.join(max(0.0, asked + keeper.spec.grace_s - time.monotonic()))
        if keeper.is_alive():
            keeper.kill()
            keeper.join(_KILLED_S)


def _kill_group(leader_pid: int) -> None:
    """Kill what is left of a child's process group; nothing happens when all of it has ended."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
        os.killpg(leader_pid, signal.SIGKILL)


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name
