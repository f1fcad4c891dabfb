"""Start real processes, wait for conditions with deadlines, and leave none behind."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(
    condition: Callable[[], T | None],
    *,
    what: str,
    timeout_s: float = 30,
    process: "Process | None" = None,
    poll_s: float = _POLL_S,
) -> T:
    """Return the first truthy answer of `condition`; fail after `timeout_s`.

    Args:
        what: What is awaited, for the failure's message.
        process: Fail at once if this one ends meanwhile; its output becomes part of the message.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        if process is not None and process.popen.poll() is not None:
            raise AssertionError(
                f"{process.name} ended with {process.popen.returncode} before {what}:\n"
                f"{process.tail()}"
            )
        if time.monotonic() > deadline:
            output = f":\n{process.tail()}" if process else ""
            raise AssertionError(f"not within {timeout_s} s: {what}{output}")
        time.sleep(poll_s)


def is_listening(port: int) -> bool:
    """Whether a loopback port accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """A child with its output in a file; it gets a signal when this process dies."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        uid: int | None = None,
        gid: int | None = None,
        death_signal: int = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                user=uid,
                group=gid,
                extra_groups=[] if uid is not None else None,
                # Ctrl-C goes to pytest alone, which then stops its children in order.
                start_new_session=True,
                preexec_fn=_dying_with_parent(death_signal),  # noqa: PLW1509 - no threads yet
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def output(self) -> str:
        """Return all it has printed."""
        return self.log.read_text(errors="replace")

    def tail(self, num_chars: int = 4000) -> str:
        """Return the end of what it has printed."""
        return self.output()[-num_chars:]

    def family(self) -> list[psutil.Process]:
        """Return the process and all its descendants that run now."""
        try:
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def stop(
        self,
        stop_signal: int = signal.SIGTERM,
        *,
        timeout_s: float = 15,
        kill_family: bool = True,
    ) -> int:
        """Ask it to end, then make it end; return its exit code.

        Args:
            kill_family: Whether its descendants are made to end as well.
        """
        family = self.family() if kill_family else []
        if self.popen.poll() is None:
            self.popen.send_signal(stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout_s)
        if self.popen.poll() is None:
            self.popen.kill()
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        return self.popen.wait(timeout_s)


@contextlib.contextmanager
def running(process: Process, *, stop_signal: int = signal.SIGTERM) -> Iterator[Process]:
    """Stop `process` at the end, whatever happens."""
    try:
        yield process
    finally:
        process.stop(stop_signal)


def still_alive(processes: Sequence[psutil.Process]) -> list[str]:
    """Return the command lines of those that run; the dead that nobody reaped do not count."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid}: {' '.join(process.cmdline())}")
    return found


def _dying_with_parent(death_signal: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def set_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return set_signal
