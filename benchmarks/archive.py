"""A manifest with bad lines to its end, through every real process but the model.

    python -m benchmarks.archive [--lines 10000] [--bad 100] [--workers 1] [--postgres]

Starts Valkey, the API, the clock and workers whose model computes nothing, posts the manifest as a
stream and waits for the end. Then half of the bad lines are mended and the batch is retried. Checks
that every line is accounted for, and prints how long it took, what a job cost in CPU time and where
(to be compared on a machine that does other things too), and how much memory there was.
"""

import argparse
import contextlib
import io
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import soundfile

from benchmarks.fake_worker import write_checkpoint
from core.settings import Settings
from core.storage import Storage, open_storage
from tests.support.postgres import postgres_server
from tests.support.processes import Process, free_port, wait_for
from tests.support.stack import environment, run_command, scriptorium
from tests.support.valkey import ValkeyServer

MODEL = "checksum"
NUM_RECORDINGS = 50
SECONDS = 2.0
MENDED = "inbox/mended.wav"
SPOILT = "inbox/spoilt.wav"
OPTIONS = {"reuse": False, "language": "en", "vad": False}
SAMPLE_S = 0.5


@dataclass
class Run:
    """The processes of one service, and how much memory they had at most (bytes)."""

    client: httpx.Client
    storage: Storage
    processes: list[Process]
    peak_bytes: dict[str, int] = field(default_factory=dict)

    def get(self, path: str) -> dict[str, Any]:
        """Return a JSON answer."""
        answer = self.client.get(path)
        answer.raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def post(self, path: str, **extra: Any) -> dict[str, Any]:  # noqa: ANN401
        """Post and return a JSON answer."""
        answer = self.client.post(path, **extra)
        answer.raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a JSONL answer as they come."""
        with self.client.stream("GET", path) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                yield json.loads(line)

    def end(self, batch_id: str, *, timeout_s: float, tell: Callable[[str], None]) -> float:
        """Wait until the batch has ended and its results are written; return the seconds."""
        began = time.monotonic()
        told = began

        def has_ended() -> bool:
            nonlocal told
            self.measure()
            view = self.get(f"/v1/batches/{batch_id}")
            if time.monotonic() - told >= 10:
                told = time.monotonic()
                tell(f"{told - began:6.0f} s  {view['counts']}")
            return view["status"] in {"completed", "failed"}

        wait_for(has_ended, what="the batch ends", timeout_s=timeout_s, poll_s=SAMPLE_S)
        return time.monotonic() - began

    def measure(self) -> None:
        """Note the memory of every process, its children included."""
        for process in self.processes:
            size = 0
            for member in process.family():
                with contextlib.suppress(Exception):
                    size += member.memory_info().rss
            self.peak_bytes[process.name] = max(size, self.peak_bytes.get(process.name, 0))


def cpu_seconds() -> Counter[str]:
    """Return the CPU time so far of all that this process started, by kind of process.

    What has ended is counted with whoever waited for it: the decoding children with their nursery.
    """
    spent: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent[_kind(" ".join(process.cmdline()))] += sum(process.cpu_times()[:4])
    return spent


def _kind(command_line: str) -> str:
    """Return what a process is, by its command line."""
    marks = {
        "core.audio": "decoding",
        "fake_worker": "workers",
        "scriptorium api": "api",
        "scriptorium beat": "beat",
        "valkey": "valkey",
        "postgres": "postgres",
    }
    return next((kind for mark, kind in marks.items() if mark in command_line), "other")


@contextlib.contextmanager
def service(folder: Path, *, workers: int = 1, database: str | None = None) -> Iterator[Run]:
    """Run everything on a fresh data directory in `folder`."""
    checkpoint = write_checkpoint(folder / "checkpoint")
    data = folder / "data"
    data.mkdir()
    with ValkeyServer(folder / "valkey") as valkey, contextlib.ExitStack() as stack:
        env = environment(
            SCRIPTORIUM_DATA_DIR=str(data),
            SCRIPTORIUM_REDIS_URL=valkey.url,
            SCRIPTORIUM_MODELS=f"{MODEL}={checkpoint}",
            SCRIPTORIUM_SWEEP_S="1",
            SCRIPTORIUM_LOG_LEVEL="warning",
            OMP_NUM_THREADS="1",
            **({"SCRIPTORIUM_DATABASE_URL": database} if database else {}),
        )
        run_command("migrate", env=env).check_returncode()
        created = run_command("keys", "create", "bench", env=env)
        created.check_returncode()
        key = re.search(r"sk-\S+", created.stdout)
        assert key is not None
        port = free_port()
        fake = [sys.executable, "-m", "benchmarks.fake_worker"]
        commands: Mapping[str, list[str]] = {
            "api": scriptorium("api", "--port", str(port)),
            "beat": scriptorium("beat"),
            **{
                f"worker {n}": [*fake, "--queues", QUEUES, "--name", f"w{n}"]
                for n in range(workers)
            },
        }
        processes = []
        for name, command in commands.items():
            process = Process(name, command, log=folder / f"{name}.log", env=env)
            stack.callback(process.stop)
            processes.append(process)
        client = stack.enter_context(
            httpx.Client(
                base_url=f"http://127.0.0.1:{port}",
                headers={"Authorization": f"Bearer {key[0]}"},
                timeout=120,
                trust_env=False,
            )
        )
        wait_for(lambda: _answers(client), what="the API answers", process=processes[0])
        storage = open_storage(Settings(data_dir=data).storage)
        yield Run(client=client, storage=storage, processes=processes)


QUEUES = f"media,maintenance,delivery,asr.{MODEL}"


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health/live").status_code == 200
    except httpx.TransportError:
        return False


def store_recordings(storage: Storage) -> None:
    """Store different recordings of noise, and one object that is none."""
    for number in range(NUM_RECORDINGS):
        storage.put(f"inbox/{number}.wav", _recording(number))
    storage.put(SPOILT, b"this is no audio")


def mend(storage: Storage) -> None:
    """Make usable what some bad lines name."""
    storage.put(MENDED, _recording(NUM_RECORDINGS))
    storage.put(SPOILT, _recording(NUM_RECORDINGS + 1))


def _recording(seed: int) -> bytes:
    random = np.random.default_rng(seed)
    samples = random.integers(-8000, 8000, int(SECONDS * 16_000)).astype(np.int16)
    out = io.BytesIO()
    soundfile.write(out, samples, 16_000, format="WAV", subtype="PCM_16")
    return out.getvalue()


def manifest(num_lines: int, num_bad: int) -> Iterator[bytes]:
    """Yield the lines; the bad ones are spread evenly, half of them can be mended."""
    every = num_lines // num_bad if num_bad else num_lines + 1
    for number in range(num_lines):
        line: dict[str, Any] = {
            "custom_id": f"line-{number}",
            "media_key": f"inbox/{number % NUM_RECORDINGS}.wav",
        }
        kind = (number // every) % 8 if num_bad and number % every == every - 1 else None
        if kind is not None and number // every >= num_bad:
            kind = None
        yield _spoil(line, kind) + b"\n"


def _spoil(line: dict[str, Any], kind: int | None) -> bytes:
    changes: dict[int, dict[str, Any]] = {
        0: {"media_key": MENDED},  # not there yet
        1: {"media_key": SPOILT},  # a job that fails
        2: {"temperature": 7},
        3: {"media_key": SPOILT},
        4: {"colour": "red"},
        5: {"media_key": MENDED},
        6: {"media_key": None, "media_url": "http://127.0.0.1/a.wav"},
    }
    if kind == 7:
        return b"{not json"
    return json.dumps(line | changes.get(kind, {}) if kind is not None else line).encode()


def is_mendable(kind: int) -> bool:
    """Whether `mend` helps the `kind`-th bad line."""
    return kind % 8 in {0, 1, 3, 5}


@dataclass(frozen=True)
class Spent:
    """What a run took: seconds by part, and CPU time of the first round by kind of process."""

    seconds: dict[str, float]
    cpu_s: Counter[str]


def measure(
    run: Run, num_lines: int, num_bad: int, *, timeout_s: float, tell: Callable[[str], None] = print
) -> Spent:
    """Run the whole scenario and return what it took.

    Raises:
        AssertionError: A line is missing, doubled or wrong.
    """
    num_good = num_lines - num_bad
    num_mended = sum(is_mendable(kind) for kind in range(num_bad))
    store_recordings(run.storage)
    seconds: dict[str, float] = {}

    began, idle = time.monotonic(), cpu_seconds()
    accepted = run.post(
        "/v1/batches",
        content=manifest(num_lines, num_bad),
        headers={"Content-Type": "application/x-ndjson"},
        params={"options": json.dumps(OPTIONS)},
    )
    batch = f"/v1/batches/{accepted['id']}"
    seconds["accept"] = time.monotonic() - began
    assert accepted["counts"]["total"] == num_lines
    seconds["first round"] = run.end(accepted["id"], timeout_s=timeout_s, tell=tell)
    cpu_s = cpu_seconds() - idle

    counts = run.get(batch)["counts"]
    assert counts == {
        "total": num_lines, "queued": 0, "running": 0, "completed": num_good,
        "failed": num_bad, "cancelled": 0,
    }, counts  # fmt: skip
    before = dict(_ends(run, f"{batch}/results"))
    assert Counter(end.status for end in before.values()) == {
        "completed": num_good, "failed": num_bad,
    }  # fmt: skip
    assert len(before) == num_lines
    errors = list(run.lines(f"{batch}/errors"))
    assert len(errors) == num_bad
    assert all(error["error"]["code"] and error["error"]["message"] for error in errors)
    run.measure()

    mend(run.storage)
    retried = run.post(f"{batch}/retry")
    assert retried["status"] == "running"
    seconds["retry"] = run.end(accepted["id"], timeout_s=timeout_s, tell=tell)
    after = dict(_ends(run, f"{batch}/results"))
    changed = {index for index, end in after.items() if end != before[index]}
    assert len(changed) == num_mended
    assert {before[index].status for index in changed} == {"failed"}
    assert {after[index].status for index in changed} == {"completed"}
    counts = run.get(batch)["counts"]
    assert counts["completed"] == num_good + num_mended
    assert counts["failed"] == num_bad - num_mended
    return Spent(seconds, cpu_s)


@dataclass(frozen=True)
class End:
    """How a line ended."""

    status: str
    job_id: str | None
    text: str | None


def _ends(run: Run, path: str) -> Iterator[tuple[int, End]]:
    """Yield position and end of every line; results come in the manifest's order."""
    for index, line in enumerate(run.lines(path)):
        assert line["custom_id"] in (f"line-{index}", None)
        yield index, End(line["status"], line["job_id"], line.get("text"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--bad", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="instead of SQLite")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = None
        if given.postgres:
            server = stack.enter_context(postgres_server(lambda _url: None))
            database = stack.enter_context(server.empty_database())
        run = stack.enter_context(service(folder, workers=given.workers, database=database))
        spent = measure(run, given.lines, given.bad, timeout_s=3600)
        for what, seconds in spent.seconds.items():
            print(f"{what:>12}: {seconds:7.1f} s")
        print(f"jobs a second in the first round: {given.lines / spent.seconds['first round']:.1f}")
        print(f"CPU a job in the first round: {spent.cpu_s.total() / given.lines * 1000:.1f} ms")
        for kind, seconds in spent.cpu_s.most_common():
            print(f"{kind:>12}: {seconds / given.lines * 1000:7.1f} ms")
        for name, size in run.peak_bytes.items():
            print(f"{name:>12}: {size / 2**20:7.0f} MiB at most")
        num_manifest = sum(len(line) for line in manifest(given.lines, given.bad))
        print(f"    manifest: {num_manifest / 2**20:7.1f} MiB")


if __name__ == "__main__":
    main()
