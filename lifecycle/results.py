"""A batch's results, one JSON line an item, in the manifest's order; a page in memory at a time."""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from core.db import read_session
from core.transcript import join_texts
from lifecycle.streaming import describe_segment
from lifecycle.transcripts import load_segments
from models import BatchItem, ItemStatus, Job, JobStatus

PAGE = 50


def iter_results(
    sessions: sessionmaker[Session], batch_id: UUID, *, statuses: Sequence[ItemStatus] | None = None
) -> Iterator[bytes]:
    """Yield a line for each item: `{index, custom_id, job_id, status, text?, segments?, error?}`.

    Args:
        statuses: Only items that stand there; None for all.
    """
    last_index = -1
    while True:
        with read_session(sessions) as session:
            items = _page(session, batch_id, statuses, after=last_index)
            lines = list(_describe(session, items))
        if not lines:
            return
        yield from lines
        last_index = items[-1].index


def describe_item(item: BatchItem, job: Job | None) -> dict[str, Any]:
    """Return an item without its transcript."""
    status: str = ItemStatus(item.status)
    if item.status == ItemStatus.OPEN:
        status = str(job.status) if job is not None else str(JobStatus.QUEUED)
    data: dict[str, Any] = {
        "index": item.index,
        "custom_id": item.custom_id,
        "job_id": None if item.job_id is None else str(item.job_id),
        "status": str(status),
    }
    if item.error_code is not None:
        data["error"] = {"code": item.error_code, "message": item.error_message}
    elif job is not None and job.error_code is not None:
        data["error"] = {"code": job.error_code, "message": job.error_message}
    return data


def find_jobs(session: Session, items: Sequence[BatchItem]) -> dict[UUID, Job]:
    """Return the jobs of items that still exist, by id."""
    ids = [item.job_id for item in items if item.job_id is not None]
    return {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(ids)))}


def _page(
    session: Session, batch_id: UUID, statuses: Sequence[ItemStatus] | None, *, after: int
) -> Sequence[BatchItem]:
    statement = select(BatchItem).where(BatchItem.batch_id == batch_id, BatchItem.index > after)
    if statuses is not None:
        statement = statement.where(BatchItem.status.in_(statuses))
    return session.scalars(statement.order_by(BatchItem.index).limit(PAGE)).all()


def _describe(session: Session, items: Sequence[BatchItem]) -> Iterator[bytes]:
    jobs = find_jobs(session, items)
    done = [job.id for job in jobs.values() if job.status == JobStatus.COMPLETED]
    segments = load_segments(session, done)
    for item in items:
        job = jobs.get(item.job_id) if item.job_id is not None else None
        data = describe_item(item, job)
        if job is not None and job.status == JobStatus.COMPLETED:
            found = segments.get(job.id, ())
            data["language"] = job.language
            data["duration_s"] = None if job.duration_ms is None else job.duration_ms / 1000
            data["text"] = join_texts(segment.text for segment in found)
            data["segments"] = [describe_segment(segment) for segment in found]
        yield json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
