"""A batch's state: what its items add up to, and when it is over.

Locks: a job's row before its batch's. Whoever ends a job locks the batch afterwards and looks at
what is left, so that of two jobs that end at once the second sees the first.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import bindparam, case, func, select, update
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.events import Publisher
from lifecycle.deliveries import BATCH_COMPLETED, Occasion, create_deliveries
from models.batch import Batch, BatchItem, BatchStatus, ItemStatus
from models.job import Job, JobStatus

# Built once: putting a statement together costs more than running it.
_ITEMS = BatchItem.metadata.tables[BatchItem.__tablename__]
_END_ITEM = (
    update(_ITEMS).where(_ITEMS.c.job_id == bindparam("of_job")).values(status=bindparam("end"))
)
_OPEN_ITEM = (
    select(_ITEMS.c["index"])
    .where(_ITEMS.c.batch_id == bindparam("of_batch"), _ITEMS.c.status == ItemStatus.OPEN)
    .limit(1)
)


class CountsView(BaseModel):
    """Items by state."""

    total: int
    queued: int
    running: int
    completed: int
    failed: int
    cancelled: int


class BatchErrorView(BaseModel):
    """Why a batch failed as a whole."""

    code: str
    message: str


class BatchView(BaseModel):
    """One batch."""

    model_config = ConfigDict(extra="forbid")

    id: UUID
    status: BatchStatus
    counts: CountsView
    audio_s_done: float
    audio_s_total: float = Field(description="As far as lengths are known.")
    eta_s: float | None = Field(description="Seconds to the end at the speed so far.")
    error: BatchErrorView | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, session: Session, batch: Batch, *, now: datetime) -> Self:
        """Return the view; counts in the database."""
        counts = count_items(session, batch)
        audio = _measure(session, batch.id)
        num_open = counts.queued + counts.running
        return cls(
            id=batch.id,
            status=BatchStatus(batch.status),
            counts=counts,
            audio_s_done=audio.done_ms / 1000,
            audio_s_total=audio.total_ms / 1000,
            eta_s=_eta_s(batch, audio, num_open=num_open, now=now),
            error=None
            if batch.error_code is None
            else BatchErrorView(code=batch.error_code, message=batch.error_message or ""),
            created_at=batch.created_at,
            started_at=batch.started_at,
            finished_at=batch.finished_at,
        )


def count_items(session: Session, batch: Batch) -> CountsView:
    """Return how many lines stand where; lines that are no items yet are queued."""
    by_status = dict.fromkeys(ItemStatus, 0) | {
        ItemStatus(status): int(count)
        for status, count in session.execute(
            select(BatchItem.status, func.count())
            .where(BatchItem.batch_id == batch.id)
            .group_by(BatchItem.status)
        )
    }
    running = session.scalar(
        select(func.count()).where(Job.batch_id == batch.id, Job.status == JobStatus.RUNNING)
    )
    num_items = sum(by_status.values())
    total = num_items if batch.num_lines is None else max(batch.num_lines, num_items)
    running = min(int(running or 0), by_status[ItemStatus.OPEN])
    return CountsView(
        total=total,
        queued=total - num_items + by_status[ItemStatus.OPEN] - running,
        running=running,
        completed=by_status[ItemStatus.COMPLETED],
        failed=by_status[ItemStatus.FAILED],
        cancelled=by_status[ItemStatus.CANCELLED],
    )


def note_job_end(uow: UnitOfWork, publisher: Publisher, job: Job, *, now: datetime) -> None:
    """Carry a job's end over to its item; `record_event` calls it with a job's last event."""
    if job.batch_id is None:
        return
    batch = lock_batch(uow.session, job.batch_id)
    if batch is None:
        return
    uow.session.execute(_END_ITEM, {"of_job": job.id, "end": ItemStatus(str(job.status))})
    settle_batch(uow, publisher, batch, now=now)


def lock_batch(session: Session, batch_id: UUID) -> Batch | None:
    """Lock a batch's row until the transaction ends and return it as it is now, if it exists."""
    return session.get(Batch, batch_id, with_for_update=True, populate_existing=True)


def settle_batch(uow: UnitOfWork, publisher: Publisher, batch: Batch, *, now: datetime) -> bool:
    """End a locked batch if nothing of it is left to do; return whether it ended now."""
    if batch.status != BatchStatus.RUNNING or batch.expanded_at is None:
        return False
    uow.session.flush()
    is_open = uow.session.scalar(_OPEN_ITEM, {"of_batch": batch.id})
    if is_open is not None:
        return False
    is_cancelled = batch.cancel_requested_at is not None
    batch.move_to(BatchStatus.CANCELLED if is_cancelled else BatchStatus.COMPLETED, now=now)
    uow.session.flush()
    occasion = Occasion(
        event_type=BATCH_COMPLETED,
        subject_id=batch.id,
        number=batch.round,
        key_id=batch.key_id,
        data=BatchView.of(uow.session, batch, now=now).model_dump(mode="json"),
        at=now,
    )
    create_deliveries(uow, publisher, occasion, url=batch.webhook_url, secret=batch.webhook_secret)
    return True


def forget_item(session: Session, job: Job) -> list[str]:
    """Detach a job that is about to be deleted; an item that was open is cancelled with it.

    Returns:
        Objects to delete: the stored results hold the job's text. Results go on being streamed
        from the rows that are left.
    """
    if job.batch_id is None:
        return []
    status = case(
        (BatchItem.status == ItemStatus.OPEN, ItemStatus.CANCELLED.value), else_=BatchItem.status
    )
    session.execute(
        update(BatchItem)
        .where(BatchItem.job_id == job.id)
        .values(job_id=None, status=status)
        .execution_options(synchronize_session=False)
    )
    return [results_key(job.batch_id)]


def manifest_key(batch_id: UUID) -> str:
    """Return where a batch's manifest lies until its last line is an item."""
    return f"batches/{batch_id}/manifest.jsonl"


def results_key(batch_id: UUID) -> str:
    """Return where all results of a finished batch lie in storage."""
    return f"batches/{batch_id}/results.jsonl"


def errors_key(batch_id: UUID) -> str:
    """Return where the results of its failed items lie."""
    return f"batches/{batch_id}/errors.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audio:
    """Audio of a batch's jobs, ms, as far as lengths are known.

    Attributes:
        left_ms: What jobs that have not ended still have to do.
        num_known: Jobs of known length; `num_known_open` of them have not ended.
    """

    done_ms: int
    total_ms: int
    left_ms: int
    num_known: int
    num_known_open: int


def _measure(session: Session, batch_id: UUID) -> _Audio:
    length_ms = func.coalesce(Job.duration_ms, Job.estimated_ms)
    is_open = Job.status.in_((JobStatus.QUEUED, JobStatus.RUNNING))
    done_ms: Any = case((Job.status == JobStatus.COMPLETED, length_ms), else_=Job.audio_ms_done)
    row = session.execute(
        select(
            func.coalesce(func.sum(done_ms), 0),
            func.coalesce(func.sum(length_ms), 0),
            func.coalesce(func.sum(length_ms - Job.audio_ms_done).filter(is_open), 0),
            func.count(length_ms),
            func.count(length_ms).filter(is_open),
        ).where(Job.batch_id == batch_id)
    ).one()
    done, total, left, known, known_open = (int(value) for value in row)
    return _Audio(
        done_ms=done,
        total_ms=total,
        left_ms=left,
        num_known=known,
        num_known_open=known_open,
    )


def _eta_s(batch: Batch, audio: _Audio, *, num_open: int, now: datetime) -> float | None:
    """Return the seconds to the end; items of unknown length count as the others' average."""
    if not num_open or not audio.done_ms or not audio.num_known or batch.started_at is None:
        return None
    num_unknown = max(0, num_open - audio.num_known_open)
    left_ms = audio.left_ms + num_unknown * audio.total_ms / audio.num_known
    elapsed_s = (now - batch.started_at).total_seconds()
    return round(max(0.0, left_ms * elapsed_s / audio.done_ms), 1)
