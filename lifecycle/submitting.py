"""New jobs: their rows, and what tells of them."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.events import EventType, Publisher
from core.ids import new_id
from core.options import Priority, TranscribeOptions
from core.queues import JobQueue
from lifecycle.events import record_event
from lifecycle.progress import describe_update
from models import Job, Media


def add_job(
    session: Session,
    *,
    key_id: UUID,
    media: Media,
    model: str,
    options: TranscribeOptions,
    priority: Priority,
    reference: str | None = None,
    metadata: dict[str, Any] | None = None,
    delete_at: datetime | None = None,
    webhook_url: str | None = None,
    webhook_secret: str | None = None,
    may_reuse: bool = True,
    batch_id: UUID | None = None,
    estimated_ms: int | None = None,
    now: datetime,
) -> Job:
    """Add a job to the session; many of them are inserted at once with its next flush.

    Call `announce_job` after that.

    Args:
        media: New or already stored; added to the session here.
        model: Name of a served model; the caller has checked it.
        may_reuse: See `models.Job`, also for what follows.
    """
    job = Job(
        id=new_id(),
        key_id=key_id,
        media=media,
        model=model,
        options=options.model_dump(mode="json"),
        priority=int(priority),
        reference=reference,
        job_metadata=metadata,
        delete_at=delete_at,
        webhook_url=webhook_url,
        webhook_secret=webhook_secret,
        may_reuse=may_reuse,
        batch_id=batch_id,
        estimated_ms=estimated_ms,
        created_at=now,
    )
    session.add(job)
    return job


def announce_job(
    uow: UnitOfWork, queue: JobQueue, publisher: Publisher, job: Job, *, now: datetime
) -> None:
    """Record the first event of an inserted job and, once it is durable, tell the media workers.

    If the process dies between commit and message, the sweeper finds the queued row.
    """
    record_event(uow, publisher, job, EventType.JOB_UPDATED, describe_update(job), now=now)
    uow.after_commit(partial(queue.prepare, job.id, priority=job.priority))
