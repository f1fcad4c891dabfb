"""Which objects in storage no row needs any more."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from models import Batch, Job, JobStatus, Media, Upload


def find_unused_windows(
    session: Session, names: Sequence[str], *, ended_before: datetime
) -> list[str]:
    """Return which folders of windows' audio are unused.

    Those of completed jobs, of jobs that are gone, and of jobs that ended otherwise before
    `ended_before`: until then they may be retried without decoding anything again.

    Args:
        names: Job ids as they stand in the keys.
    """
    by_id = {UUID(name): name for name in names if _is_uuid(name)}
    rows = session.execute(
        select(Job.id, Job.status, Job.finished_at).where(Job.id.in_(list(by_id)))
    ).all()
    needed = {
        row.id
        for row in rows
        if row.status != JobStatus.COMPLETED
        and (row.finished_at is None or row.finished_at >= ended_before)
    }
    return [name for job_id, name in by_id.items() if job_id not in needed]


def find_unused_media(session: Session, keys: Sequence[str]) -> list[str]:
    """Return those of `keys` that no media names."""
    used = set(session.scalars(select(Media.storage_key).where(Media.storage_key.in_(list(keys)))))
    return [key for key in keys if key not in used]


def find_unused_transcripts(session: Session, keys: Sequence[str]) -> list[str]:
    """Return those of `keys` that no job names; one that is about to does so within the hour."""
    used = set(
        session.scalars(select(Job.transcript_key).where(Job.transcript_key.in_(list(keys))))
    )
    return [key for key in keys if key not in used]


def find_unused_uploads(session: Session, keys: Sequence[str]) -> list[str]:
    """Return those of `keys` below "uploads/<id>/" whose upload is gone and that are no media."""
    names = {key: key.split("/")[1] for key in keys}
    ids = [UUID(name) for name in set(names.values()) if _is_uuid(name)]
    open_ids = {str(each) for each in session.scalars(select(Upload.id).where(Upload.id.in_(ids)))}
    unused = set(find_unused_media(session, keys))
    return [key for key in keys if key in unused and names[key] not in open_ids]


def find_unused_batches(session: Session, keys: Sequence[str]) -> list[str]:
    """Return those of `keys` below "batches/<id>/" whose batch is gone."""
    names = {key: key.split("/")[1] for key in keys}
    ids = [UUID(name) for name in set(names.values()) if _is_uuid(name)]
    known = {str(each) for each in session.scalars(select(Batch.id).where(Batch.id.in_(ids)))}
    return [key for key in keys if names[key] not in known]


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
