"""A whole Scriptorium in real processes, started by its own command line."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import make_engine, make_sessions, read_session
from models import Job, Window
from tests.support.processes import Process, still_alive, wait_for

START_S = 180.0
"""Longest start: imports from a cold disk, beside whatever else the machine does."""

JOB_S = 480.0
"""Longest job of these tests, on a busy machine."""


def scriptorium(*arguments: str | Path) -> list[str]:
    """Return the command line that a person would type, as this environment installed it."""
    return [str(Path(sys.executable).with_name("scriptorium")), *map(str, arguments)]


def environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with these settings of ours and no others."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SCRIPTORIUM_")}
    return inherited | settings


def run_command(
    *arguments: str | Path, env: Mapping[str, str], timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        scriptorium(*arguments),
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )


class Stack:
    """A running `scriptorium up`, seen as a client, an operator and a saboteur see it."""

    def __init__(
        self,
        *,
        data: Path,
        env: Mapping[str, str],
        database_url: str | None = None,
        restart_redis: Callable[[], None] | None = None,
        key: str | None = None,
    ) -> None:
        """Start it and wait until it is ready.

        Args:
            database_url: Default: the embedded one.
            restart_redis: Kills the external Redis and starts it again.
            key: An API key, if the data directory has one from an earlier start.
        """
        self.data = data
        self.env = env
        self._restart_redis = restart_redis
        self._engine = make_engine(database_url or f"sqlite:///{data / 'scriptorium.db'}")
        self.sessions = make_sessions(self._engine)
        data.parent.mkdir(parents=True, exist_ok=True)
        # One a start: what an earlier one printed must not be taken for this one's.
        log = data.parent / f"{data.name}.{len(list(data.parent.glob('*.log')))}.log"
        self.process = Process(
            "scriptorium up",
            scriptorium("up", "--data", data, "--port", "0"),
            log=log,
            env=env,
        )
        self._seen: dict[int, psutil.Process] = {}
        try:
            found = wait_for(
                lambda: re.search(r"ready at (http://\S+)\n", self.process.output()),
                what="scriptorium is ready",
                timeout_s=START_S,
                process=self.process,
            )
        except BaseException:
            self.process.stop()
            raise
        self.url = found[1]
        self.remember_family()
        shown = wait_for(
            lambda: re.search(r"API keys? (?:\(.*\): (\S+)|exist)", self.process.output()),
            what="a key is shown",
        )
        self.key = shown[1] or key
        self.client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=60,
            trust_env=False,
        )

    # As a client ----------------------------------------------------------------------------

    def submit(self, path: Path, **options: str) -> str:
        """Upload a recording, to be recognised anew; return the job's id."""
        form = {"reuse": "false", **options}
        with path.open("rb") as handle:
            answer = self.client.post("/v1/jobs", files={"file": (path.name, handle)}, data=form)
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def show(self, job_id: str) -> dict[str, Any]:
        """Return the job as the API shows it."""
        answer = self.client.get(f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def finish(self, job_id: str, *, status: str = "completed") -> dict[str, Any]:
        """Wait until the job ends; return it."""

        def ended() -> dict[str, Any] | None:
            job = self.show(job_id)
            return job if job["finished_at"] else None

        job = wait_for(
            ended, what=f"job {job_id} ends", timeout_s=JOB_S, process=self.process, poll_s=0.3
        )
        assert job["status"] == status, job
        return job

    def transcript(self, job_id: str, format_: str = "json") -> httpx.Response:
        """Return the transcript's response."""
        answer = self.client.get(f"/v1/jobs/{job_id}/transcript", params={"format": format_})
        assert answer.status_code == 200, answer.text
        return answer

    # As an operator -------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Provide a session on the stack's database."""
        with read_session(self.sessions) as session:
            yield session

    def job(self, job_id: str) -> Job:
        """Return the job's row."""
        with self.reading() as session:
            return session.scalars(select(Job).where(Job.id == UUID(job_id))).one()

    def windows(self, job_id: str) -> list[Window]:
        """Return the rows of the job's windows in order."""
        with self.reading() as session:
            rows = session.scalars(
                select(Window).where(Window.job_id == UUID(job_id)).order_by(Window.index)
            )
            return list(rows)

    def wait_for_windows(self, job_id: str, *, at_least: int) -> list[Window]:
        """Wait until so many windows are done and some are not; return those that are done."""
        done = wait_for(
            lambda: (
                [w for w in self.windows(job_id) if w.finished_at is not None][at_least - 1 :]
                and [w for w in self.windows(job_id) if w.finished_at is not None]
            ),
            what=f"{at_least} windows are done",
            timeout_s=JOB_S,
            process=self.process,
        )
        assert self.show(job_id)["status"] == "running", "too fast: nothing is left to disturb"
        return done

    # As a saboteur --------------------------------------------------------------------------

    def remember_family(self) -> list[psutil.Process]:
        """Note which processes belong to the stack now; return them."""
        family = self.process.family()
        self._seen.update({member.pid: member for member in family})
        return family

    def child(self, *marks: str) -> psutil.Process:
        """Return the child with all `marks` in its command line."""

        def find() -> psutil.Process | None:
            for member in self.remember_family():
                try:
                    line = member.cmdline()
                except psutil.NoSuchProcess:
                    continue
                if member.pid != self.process.pid and all(
                    any(mark in word for word in line) for mark in marks
                ):
                    return member
            return None

        return wait_for(find, what=f"a child {marks} is there", process=self.process)

    def worker(self, name: str) -> psutil.Process:
        """Return the worker of that name."""
        return self.child("worker", name)

    def restart_redis(self) -> None:
        """Kill Redis; it comes back with what its append-only file holds."""
        if self._restart_redis is not None:
            self._restart_redis()
            return
        server = self.child("valkey-server")
        server.kill()
        wait_for(lambda: self.child("valkey-server") != server, what="Redis is started again")

    @property
    def redis_url(self) -> str:
        """Where the stack's Redis answers."""
        return self.env.get("SCRIPTORIUM_REDIS_URL") or f"unix://{self.data / 'redis.sock'}"

    def stop(self, stop_signal: int = signal.SIGTERM, *, timeout_s: float = 60) -> int:
        """Ask it to end; return its exit code."""
        self.remember_family()
        self.client.close()
        self._engine.dispose()
        return self.process.stop(stop_signal, timeout_s=timeout_s, kill_family=False)

    def leftovers(self) -> list[str]:
        """Return what still runs of all the processes that were ever seen."""
        return still_alive(list(self._seen.values()))


def fetch_checkpoint() -> Path:
    """Return the folder of the default checkpoint; `make setup` fetched it, else this does."""
    done = run_command("models", "fetch", "--json", env=environment(), timeout_s=600)
    assert done.returncode == 0, done.stderr
    [model] = json.loads(done.stdout)
    return Path(model["folder"])


def json_lines(text: str) -> list[dict[str, Any]]:
    """Parse JSON lines."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def names(paths: Sequence[Path]) -> list[str]:
    """Return the files' names in order."""
    return sorted(path.name for path in paths)
