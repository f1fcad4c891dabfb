"""Reading a completed job's transcript from its rows."""

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
