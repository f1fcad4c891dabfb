"""Who owns a data directory, and how others on this machine reach the owner."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.errors import AlreadyRunning


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStack:
    """What the owner of a data directory writes down while it is ready.

    Attributes:
        kind: "up" or "transcribe".
        url: Where its API answers, from this machine.
        revisions: Revision of each served checkpoint by name.
    """

    pid: int
    kind: str
    url: str
    revisions: Mapping[str, str]


def make_private(folder: Path) -> None:
    """Create `folder` for this user alone: it holds recordings, transcripts and sockets."""
    if not folder.is_dir():
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)


@contextmanager
def own(data_path: Path, *, kind: str) -> Iterator[None]:
    """Hold the data directory exclusively.

    The kernel releases the lock when the process ends, however it ends, so a file left by a crash
    harms nobody.

    Raises:
        AlreadyRunning: Another process holds it; the message names it.
    """
    make_private(data_path)
    path = data_path / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise AlreadyRunning(_describe_owner(data_path, path)) from exc
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "kind": kind}).encode())
        yield
        # The file stays: removing it would let two processes lock two files of the same name.
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


@contextmanager
def announced(data_path: Path, stack: RunningStack) -> Iterator[None]:
    """Let `find_running` see `stack` for as long as the context lasts."""
    path = _announcement(data_path)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(stack)), encoding="utf-8")
    temporary.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_running(data_path: Path) -> RunningStack | None:
    """Return the ready owner of the directory, or None; what a crash left behind does not count."""
    if not is_owned(data_path):
        return None
    data = _read_json(_announcement(data_path))
    try:
        return RunningStack(**data)
    except TypeError:
        return None


def is_owned(data_path: Path) -> bool:
    """Whether a living process holds the directory."""
    try:
        descriptor = os.open(data_path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _describe_owner(data_path: Path, lock: Path) -> str:
    owner = _read_json(lock)
    who = f"`scriptorium {owner['kind']}` (pid {owner['pid']})" if owner else "Another process"
    running = _read_json(_announcement(data_path))
    where = f" and serves {running['url']}" if running.get("url") else ""
    return f"{who} uses {data_path}{where}. Stop it, or choose another directory with --data."


def _announcement(data_path: Path) -> Path:
    return data_path / "up.json"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
