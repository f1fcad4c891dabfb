"""The end of a job that went well."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from core.db import UnitOfWork
from core.events import EventType, Publisher
from core.transcript import Segment, Transcript
from lifecycle.events import record_event
from lifecycle.jobs import lock_owned_job
from lifecycle.progress import describe_update
from models import Job, JobStage, JobStatus
from models import Segment as SegmentRow

_SEGMENT: TypeAdapter[Segment] = TypeAdapter(Segment)
STATS = (
    "avg_logprob",
    "no_speech_prob",
    "compression_ratio",
    "temperature",
    "tokens",
    "language",
)
"""Fields of a segment that are stored together in `segments.stats`."""

RARE_STATS = ("token_logprobs",)
"""Likewise, but only where there are any: few ask for them, and they are larger than the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What `finish` made of a job."""

    transcript: Transcript
    transcript_key: str
    coverage: dict[str, Any]


def complete_job(
    uow: UnitOfWork,
    publisher: Publisher,
    job_id: UUID,
    outcome: Outcome,
    *,
    attempt: int,
    now: datetime,
) -> Job:
    """Store the transcript's segments and end the job.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = lock_owned_job(uow.session, job_id, attempt=attempt, stage=JobStage.FINISH)
    transcript = outcome.transcript
    uow.session.add_all(
        segment_row(job.id, index, segment) for index, segment in enumerate(transcript.segments)
    )
    job.language = transcript.language
    job.warnings = list(transcript.warnings)
    job.coverage = outcome.coverage
    job.transcript_key = outcome.transcript_key
    job.move_to(JobStatus.COMPLETED, now=now)
    text = {"text": transcript.text, "language": transcript.language}
    record_event(uow, publisher, job, EventType.TEXT_DONE, text, now=now)
    record_event(uow, publisher, job, EventType.JOB_COMPLETED, describe_update(job), now=now)
    return job


def segment_row(job_id: UUID, index: int, segment: Segment) -> SegmentRow:
    """Return the row of a segment; `lifecycle.transcripts` reads it back."""
    data = _SEGMENT.dump_python(segment, mode="json")
    return SegmentRow(
        job_id=job_id,
        index=index,
        channel=segment.channel,
        start_ms=segment.start_ms,
        end_ms=segment.end_ms,
        text=segment.text,
        words=data["words"] or None,
        stats={name: data[name] for name in STATS}
        | {name: data[name] for name in RARE_STATS if data[name]},
    )
