"""Which jobs still need a language, and which windows they could ask."""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from models import Job, Window


def load_jobs(session: Session, job_ids: Iterable[UUID]) -> dict[UUID, Job]:
    """Return the jobs that exist, by id."""
    found = session.scalars(
        select(Job).where(Job.id.in_(set(job_ids))).execution_options(populate_existing=True)
    )
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
