"""Which jobs still need a language, and which windows they could ask."""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from models import Job, Window

# Built once: putting a statement together costs more than running it.
_JOBS = (
    select(Job)
    .where(Job.id.in_(bindparam("job_ids", expanding=True)))
    .execution_options(populate_existing=True)
)


def load_jobs(session: Session, job_ids: Iterable[UUID]) -> dict[UUID, Job]:
    """Return the jobs that exist, by id."""
    found = session.scalars(_JOBS, {"job_ids": list(set(job_ids))})
    return {job.id: job for job in found}


def load_windows(session: Session, job_id: UUID, positions: Iterable[int]) -> list[Window]:
    """Return the job's windows at these positions, in order."""
    return list(
        session.scalars(
            select(Window)
            .where(Window.job_id == job_id, Window.index.in_(list(positions)))
            .order_by(Window.index)
        )
    )
