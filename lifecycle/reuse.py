"""Copying a finished transcript instead of making the same one again.

Equal media, checkpoint revision and options give equal transcripts, so re-running an archive costs
nothing. Only within one key: a transcript must not tell that somebody else has the same recording.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.events import Publisher
from core.options import TranscribeOptions
from core.transcript import Transcript
from lifecycle.completion import Outcome, complete_job
from lifecycle.jobs import lock_owned_job
from lifecycle.media import describe_media
from lifecycle.streaming import record_segments
from lifecycle.transcripts import load_transcript
from models import Job, JobStage, JobStatus, Media

MAX_CANDIDATES = 50
IRRELEVANT_OPTIONS = frozenset({"stream"})
"""They change when text is published, not what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """A finished job with the same media, checkpoint and options, and what it found."""

    job: Job
    transcript: Transcript


def find_twin(
    session: Session, job: Job, *, sha256: str, adapter: str, revision: str | None
) -> Twin | None:
    """Return the newest finished job that `job` would repeat, if there is one.

    Args:
        revision: Of the checkpoint as served now; without one nothing is known to be equal.
    """
    if revision is None:
        return None
    candidates = session.scalars(
        select(Job)
        .join(Media, Media.id == Job.media_id)
        .where(
            Job.key_id == job.key_id,
            Job.id != job.id,
            Job.status == JobStatus.COMPLETED,
            Job.model == job.model,
            Job.adapter == adapter,
            Job.revision == revision,
            Media.sha256 == sha256,
        )
        .order_by(Job.finished_at.desc())
        .limit(MAX_CANDIDATES)
    ).all()
    wanted = _relevant(job.options)
    twin = next((each for each in candidates if _relevant(each.options) == wanted), None)
    if twin is None:
        return None
    transcript = load_transcript(session, twin)
    # Segments never change and go only with their job: if it is still there, they are complete.
    still_there = session.scalar(select(Job.id).where(Job.id == twin.id))
    return None if still_there is None else Twin(job=twin, transcript=transcript)


def complete_from_twin(
    uow: UnitOfWork,
    publisher: Publisher,
    job_id: UUID,
    twin: Twin,
    *,
    sha256: str,
    transcript_key: str,
    attempt: int,
    now: datetime,
) -> Job:
    """End a job that `prepare` has claimed with the transcript of another.

    Args:
        sha256: Of the job's media, as it was read.

    Raises:
        LeaseLost: The claim is somebody else's by now, or the job has ended.
    """
    job = lock_owned_job(uow.session, job_id, attempt=attempt, stage=JobStage.PREPARE)
    source = twin.job
    describe_media(uow.session, job.media_id, sha256=sha256)
    job.stage = JobStage.FINISH
    job.reused_from = source.id
    job.adapter, job.revision = source.adapter, source.revision
    job.duration_ms = source.duration_ms
    job.windows_done, job.windows_total = source.windows_done, source.windows_total
    job.audio_ms_done, job.audio_ms_total = source.audio_ms_done, source.audio_ms_total
    job.prepared_at = now
    uow.session.flush()
    segments = twin.transcript.segments
    record_segments(
        uow, publisher, job, segments, head_end_ms=twin.transcript.duration_ms + 1, now=now
    )
    outcome = Outcome(
        transcript=twin.transcript,
        transcript_key=transcript_key,
        coverage=source.coverage or {},
    )
    return complete_job(uow, publisher, job.id, outcome, attempt=attempt, now=now)


def _relevant(options: dict[str, Any]) -> dict[str, Any]:
    # Parsed, so that an option which a job is older than counts as its default.
    return TranscribeOptions.parse(options).model_dump(exclude=set(IRRELEVANT_OPTIONS))
