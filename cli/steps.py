"""One step of one recording: upload, look, fetch and write.

Runs in threads of a pool, so nothing here touches the ledger or the screen.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cli.client import Client, NotNow, Refused
from cli.ledger import Entry, Ledger
from cli.outputs import FORMATS, with_format, write_atomically
from cli.sources import Source
from core.errors import Forbidden, Unauthenticated


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How all recordings of a run are treated.

    Attributes:
        options: Form fields of every job.
        fingerprint: See `cli.ledger`.
        with_text: Whether results carry the transcript.
        deletes_jobs: Whether jobs are deleted from the server once they are dealt with.
    """

    options: Mapping[str, str]
    formats: tuple[str, ...]
    fingerprint: str
    with_text: bool
    deletes_jobs: bool


@dataclass(eq=False, kw_only=True)
class Pending:
    """What takes steps with the server, and waits between them.

    Attributes:
        since_s: Monotonic time at which it began.
        next_s: Monotonic time of the next step.
        num_faults: How often the server broke over the present step.
        num_delays: How often the present step was put off.
    """

    since_s: float = 0.0
    next_s: float = 0.0
    num_faults: int = 0
    num_delays: int = 0


@dataclass(eq=False, kw_only=True)
class Item(Pending):
    """One recording on its way.

    Attributes:
        entry: What an earlier run left of it, until that has been looked into.
    """

    source: Source
    stem: Path
    reference: str
    entry: Entry | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """The job has not ended; this is what the server says of it."""

    job: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gone:
    """The job is no longer on the server."""


@dataclass(frozen=True, slots=True)
class Later:
    """The step has to be repeated."""

    reason: NotNow


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What became of one recording.

    Attributes:
        status: "completed", "failed" or "skipped".
        text: The transcript, where it was asked for.
    """

    path: Path
    status: str
    job_id: str | None = None
    outputs: tuple[Path, ...] = ()
    duration_s: float | None = None
    language: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    text: str | None = None


Outcome = Running | Gone | Later | FileResult
ItemT = TypeVar("ItemT", bound=Item)
OutcomeT = TypeVar("OutcomeT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps, for one server and one plan."""

    client: Client
    plan: Plan
    ledger: Ledger

    def take(
        self, action: Callable[[ItemT], OutcomeT], item: ItemT
    ) -> OutcomeT | Later | FileResult:
        """Do one of the steps below; what goes wrong with the file or the server is an outcome."""
        try:
            return action(item)
        except NotNow as exc:
            return Later(exc)
        except Refused as exc:
            return failed(item, exc.code, str(exc))
        except OSError as exc:
            return failed(item, "unreadable", (exc.strerror or str(exc)).lower())

    def upload(self, item: Item) -> Outcome:
        """Make the job, unless an earlier run did."""
        if item.entry is not None:
            # An earlier run may have died between the upload and the answer.
            found = self.client.find_by_reference(item.reference)
            if found is not None and found["status"] == "cancelled":
                found = self.client.retry(found["id"])
            if found is not None and found["status"] != "failed":
                return Running(found)
        return Running(
            self.client.submit(item.source.path, self.plan.options, reference=item.reference)
        )

    def look(self, item: Item) -> Outcome:
        """See how far the job is; write its transcripts if it has ended."""
        assert item.job_id is not None  # noqa: S101 - for the type checker
        try:
            job = self.client.get_job(item.job_id)
        except Refused as exc:
            if exc.code == "job_not_found":
                return Gone()
            raise
        status = job["status"]
        if status == "completed":
            return self._collect(item, job)
        if status == "failed":
            return failed(item, job["error"]["code"], job["error"]["message"])
        if status == "cancelled":
            if item.entry is not None:  # an earlier run, or its end, cancelled it
                return Running(self.client.retry(item.job_id))
            return failed(item, "cancelled", "the job was cancelled on the server")
        return Running(job)

    def _collect(self, item: Item, job: dict[str, Any]) -> FileResult:
        texts = {
            name: self.client.get_transcript(job["id"], FORMATS[name])
            for name in {*self.plan.formats, *(["txt"] if self.plan.with_text else [])}
        }
        outputs = [(with_format(item.stem, name), texts[name]) for name in self.plan.formats]
        self.ledger.own(item.source, self.plan.fingerprint, [path for path, _ in outputs])
        try:
            for path, data in outputs:
                write_atomically(path, data)
        except OSError as exc:
            reason = (exc.strerror or str(exc)).lower()
            return failed(item, "output_unwritable", f"{exc.filename or item.stem}: {reason}")
        return FileResult(
            path=item.source.path,
            status="completed",
            job_id=job["id"],
            outputs=tuple(path for path, _ in outputs),
            duration_s=job["duration_s"],
            language=job["language"],
            text=texts["txt"].decode().strip() if self.plan.with_text else None,
        )

    def delete(self, job_id: str) -> None:
        """Delete a job that is dealt with; one that stays does no harm."""
        with suppress(NotNow, Refused, Unauthenticated, Forbidden):
            self.client.delete(job_id)


def failed(item: Item, code: str, message: str) -> FileResult:
    """Return the result of a recording that cannot be transcribed."""
    return FileResult(
        path=item.source.path,
        status="failed",
        job_id=item.job_id,
        error_code=code,
        error_message=message,
    )
