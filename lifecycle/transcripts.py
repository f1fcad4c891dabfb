"""Reading a completed job's transcript from its rows."""

from collections.abc import Sequence
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.errors import TranscriptNotReady
from core.transcript import Segment, Transcript
from models import Job, JobStatus
from models import Segment as SegmentRow

_SEGMENT: TypeAdapter[Segment] = TypeAdapter(Segment)


def load_transcript(session: Session, job: Job) -> Transcript:
    """Return the transcript of a completed job.

    Raises:
        TranscriptNotReady: The job has not completed.
    """
    if job.status != JobStatus.COMPLETED:
        raise TranscriptNotReady(f"Job {job.id} is {job.status}; it has no transcript.")
    rows = session.scalars(
        select(SegmentRow).where(SegmentRow.job_id == job.id).order_by(SegmentRow.index)
    )
    return Transcript(
        segments=tuple(_segment(row) for row in rows),
        language=job.language,
        duration_ms=job.duration_ms or 0,
        task=str(job.options.get("task", "transcribe")),
        model=job.model,
        warnings=tuple(job.warnings),
    )


def load_segments(session: Session, job_ids: Sequence[UUID]) -> dict[UUID, tuple[Segment, ...]]:
    """Return the segments of several completed jobs at once; jobs without speech are left out."""
    found: dict[UUID, list[Segment]] = {}
    rows = session.scalars(
        select(SegmentRow)
        .where(SegmentRow.job_id.in_(list(job_ids)))
        .order_by(SegmentRow.job_id, SegmentRow.index)
    )
    for row in rows:
        found.setdefault(row.job_id, []).append(_segment(row))
    return {job_id: tuple(segments) for job_id, segments in found.items()}


def _segment(row: SegmentRow) -> Segment:
    return _SEGMENT.validate_python(
        {
            "text": row.text,
            "start_ms": row.start_ms,
            "end_ms": row.end_ms,
            "channel": row.channel,
            "words": row.words or (),
            **row.stats,
        }
    )
