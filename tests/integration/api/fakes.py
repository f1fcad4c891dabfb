"""A queue that remembers, and a worker that answers with what a test gave it."""

import queue
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self
from uuid import UUID

from api.context import ApiContext
from core.db import unit_of_work
from core.events import EventType
from core.transcript import Segment, Transcript
from lifecycle.completion import Outcome, complete_job
from lifecycle.events import record_event
from lifecycle.jobs import fail_job, lock_job, transcript_key
from lifecycle.progress import describe_update
from lifecycle.streaming import record_segments
from models import Job, JobStage, JobStatus

HELLO = (
    Segment(text="Hello there.", start_ms=0, end_ms=1000, language="en"),
    Segment(text="How are you?", start_ms=1200, end_ms=2500, language="en"),
)


@dataclass
class RecordingQueue:
    """Implements `core.queues.JobQueue`; a test or a worker takes what was sent."""

    prepared: "queue.Queue[UUID | None]" = field(default_factory=queue.Queue)
    num_prepared: int = 0

    def prepare(self, job_id: UUID, *, priority: int) -> None:
        self.num_prepared += 1
        self.prepared.put(job_id)

    def wake(self, adapter: str, *, count: int = 1) -> None:
        raise AssertionError("the API wakes no recogniser")

    def finish(self, job_id: UUID) -> None:
        raise AssertionError("the API finishes no job")

    def deliver(self) -> None:
        """Nobody delivers in these tests."""

    def expand(self, batch_id: UUID) -> None:
        """Nobody expands in these tests."""


def now() -> datetime:
    return datetime.now(UTC)


def start(context: ApiContext, job_id: UUID) -> bool:
    """Take a queued job; return False if it is none any more."""
    with unit_of_work(context.sessions) as uow:
        job = lock_job(uow.session, job_id)
        if job is None or job.status != JobStatus.QUEUED:
            return False
        job.move_to(JobStatus.RUNNING, now=now())
        job.attempt += 1
        job.stage = JobStage.FINISH
        job.lease_expires_at = now() + timedelta(hours=1)
        job.duration_ms = 2500
        record_event(
            uow, context.publisher, job, EventType.JOB_UPDATED, describe_update(job), now=now()
        )
        return True


def tell(context: ApiContext, job_id: UUID, segment: Segment) -> None:
    """Publish one segment, after its text if the job streams."""
    with unit_of_work(context.sessions) as uow:
        job = lock_job(uow.session, job_id)
        assert job is not None
        record_segments(
            uow, context.publisher, job, [segment], head_end_ms=segment.end_ms, now=now()
        )


def complete(
    context: ApiContext,
    job_id: UUID,
    segments: tuple[Segment, ...] = HELLO,
    language: str = "en",
    warnings: tuple[str, ...] = (),
) -> None:
    """End a started job well."""
    transcript = Transcript(
        segments=segments, language=language, duration_ms=2500, warnings=warnings
    )
    outcome = Outcome(
        transcript=transcript, transcript_key=transcript_key(job_id), coverage={"speech_s": 2.3}
    )
    with unit_of_work(context.sessions) as uow:
        attempt = uow.session.get_one(Job, job_id).attempt
        complete_job(uow, context.publisher, job_id, outcome, attempt=attempt, now=now())


def fail(context: ApiContext, job_id: UUID, code: str, message: str) -> None:
    """End a started job badly."""
    with unit_of_work(context.sessions) as uow:
        job = lock_job(uow.session, job_id)
        assert job is not None
        fail_job(uow, context.publisher, job, error_code=code, error_message=message, now=now())


def finish_now(context: ApiContext, job_id: UUID, segments: tuple[Segment, ...] = HELLO) -> None:
    """Start, tell everything, complete."""
    assert start(context, job_id)
    for segment in segments:
        tell(context, job_id, segment)
    complete(context, job_id, segments)


class FakeWorker:
    """A thread that answers every job with `segments`, or fails it with `failure`.

    Attributes:
        gate: Set to let jobs pass; cleared, they wait after their first segment.
    """

    def __init__(self, context: ApiContext, jobs: RecordingQueue) -> None:
        self.segments: tuple[Segment, ...] = HELLO
        self.language = "en"
        self.warnings: tuple[str, ...] = ()
        self.failure: tuple[str, str] | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.job_ids: list[UUID] = []
        self._context = context
        self._jobs = jobs
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.gate.set()
        self._jobs.prepared.put(None)
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while (job_id := self._jobs.prepared.get()) is not None:
            self.job_ids.append(job_id)
            if start(self._context, job_id):
                self._work(job_id)

    def _work(self, job_id: UUID) -> None:
        if self.failure is not None:
            fail(self._context, job_id, *self.failure)
            return
        for segment in self.segments:
            tell(self._context, job_id, segment)
            self.gate.wait(timeout=60)
        with unit_of_work(self._context.sessions) as uow:
            job = lock_job(uow.session, job_id)
            is_ours = job is not None and job.status == JobStatus.RUNNING
        if is_ours:
            complete(self._context, job_id, self.segments, self.language, self.warnings)
