"""Starts decoding children: forked by a nursery where there can be one, else from nothing."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Protocol

import structlog

from core.audio.wire import MAX_REQUEST_BYTES, STATUS, Arguments

log = structlog.get_logger(__name__)

_ROOT = Path(__file__).resolve().parents[2]
_ANSWER_S = 30.0
"""Longest wait for a nursery that starts, beside whatever else the machine does."""

_END_S = 10.0
"""Longest wait for a process that was killed, or told to end."""


class ChildProcess(Protocol):
    """A decoding child.

    Attributes:
        out_fd: Where its frames are read.
        err_fd: Where its complaints are read.
    """

    pid: int
    out_fd: int
    err_fd: int

    def wait(self, timeout_s: float) -> int:
        """Return its exit code, or minus the number of the signal that ended it.

        Raises:
            TimeoutError: It still runs.
        """
        ...

    def end(self) -> None:
        """Kill it if it still runs, and close the descriptors."""
        ...


class NurseryLost(Exception):
    """The nursery cannot be started, or did not answer."""


def start_child(media: IO[bytes], arguments: Arguments) -> ChildProcess:
    """Start a child that decodes `media`; it gets the open file, never a name."""
    if can_fork():
        nursery = _get_nursery()
        try:
            return nursery.fork(media, arguments)
        except (NurseryLost, OSError) as exc:
            log.warning("nursery.lost", error=str(exc))
            _drop(nursery)
    return _StartedChild(media, arguments)


def warm_up() -> None:
    """Let the nursery import the decoders before the first recording waits for it."""
    if can_fork():
        _get_nursery()


def can_fork() -> bool:
    """Whether this system has what a nursery needs (a Linux since 5.3)."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class _StartedChild:
    """An interpreter of its own: slow, but everywhere to be had."""

    def __init__(self, media: IO[bytes], arguments: Arguments) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - nothing of a caller is in the arguments
            _command("core.audio.child", json.dumps(asdict(arguments))),
            stdin=media,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=_environment(),
            # Its own session: Ctrl-C at the terminal is the parent's to handle, and a decoder
            # that dies of it would look like bad media.
            start_new_session=True,
        )
        self._pipes = [p for p in (self._process.stdout, self._process.stderr) if p is not None]
        self.out_fd, self.err_fd = (pipe.fileno() for pipe in self._pipes)
        self.pid = self._process.pid

    def wait(self, timeout_s: float) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise TimeoutError from exc

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes:
            pipe.close()


class _ForkedChild:
    """A child of the nursery; signals reach it by its pidfd, which no other process can take."""

    def __init__(self, pid: int, pidfd: int, *, out_fd: int, err_fd: int, status_fd: int) -> None:
        self.pid = pid
        self.out_fd, self.err_fd = out_fd, err_fd
        self._pidfd, self._status_fd = pidfd, status_fd

    def wait(self, timeout_s: float) -> int:
        if not select.select([self._status_fd], [], [], timeout_s)[0]:
            raise TimeoutError
        data = os.read(self._status_fd, STATUS.size)
        # Without a word the nursery is gone, and the child with it.
        status: int = STATUS.unpack(data)[0] if data else -signal.SIGKILL
        return status

    def end(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with suppress(TimeoutError):
            self.wait(_END_S)
        for fd in (self.out_fd, self.err_fd, self._status_fd, self._pidfd):
            os.close(fd)


class _Nursery:
    """The parent's end of `core.audio.nursery`; used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_S)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                _command("core.audio.nursery", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fork(self, media: IO[bytes], arguments: Arguments) -> _ForkedChild:
        """Ask for a child.

        Raises:
            NurseryLost: It ended, or takes too long.
        """
        ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
        try:
            pid, pidfd = self._ask(json.dumps(asdict(arguments)), [media.fileno(), *theirs])
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        out_fd, err_fd, status_fd = ours
        return _ForkedChild(pid, pidfd, out_fd=out_fd, err_fd=err_fd, status_fd=status_fd)

    def close(self) -> None:
        """End it; it takes its children along."""
        self._socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: str, descriptors: list[int]) -> tuple[int, int]:
        with self._lock:
            socket.send_fds(self._socket, [request.encode()], descriptors)
            answer, fds, _flags, _address = socket.recv_fds(self._socket, MAX_REQUEST_BYTES, 1)
        if not answer or not fds:
            raise NurseryLost("it ended without an answer")
        return int(answer), fds[0]


_lock = threading.Lock()
_nursery: _Nursery | None = None


def _get_nursery() -> _Nursery:
    global _nursery  # noqa: PLW0603 - one a process
    with _lock:
        if _nursery is None:
            _nursery = _Nursery()
        return _nursery


def _drop(lost: _Nursery | None) -> None:
    """End a nursery and the children that it still has; the next one is new."""
    global _nursery  # noqa: PLW0603 - one a process
    with _lock:
        if lost is not None and lost is _nursery:
            lost.close()
            _nursery = None


def _forget_inherited() -> None:
    """Leave the nursery to the process that this one was forked from."""
    global _nursery, _lock
    _nursery, _lock = None, threading.Lock()


def _command(module: str, argument: str) -> list[str]:
    return [sys.executable, "-s", "-P", "-m", module, argument]


def _environment() -> Mapping[str, str]:
    """Return a clean environment: no secrets to leak, and one thread for numpy's libraries."""
    return {
        "PYTHONPATH": str(_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


atexit.register(lambda: _drop(_nursery))
os.register_at_fork(after_in_child=_forget_inherited)
