"""Lines become items and jobs, some at a time; items that failed are retried, or cancelled.

Works like a stage of a job: a claim with a lease, writes fenced by `batches.attempt`, and each
transaction moves the position in the source with what it adds, so that no line is lost or doubled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import and_, exists, func, or_, select
from sqlalchemy.orm import Session

from core.db import UnitOfWork
from core.errors import (
    InvalidInput,
    InvalidOption,
    LeaseLost,
    LimitExceeded,
    NotFound,
    ScriptoriumError,
    UploadIncomplete,
)
from lifecycle.batches import lock_batch
from lifecycle.intake import Intake, MediaMaker, add_within_limits
from lifecycle.manifest import ParsedLine
from lifecycle.submitting import announce_job
from models import ApiKey, Batch, BatchItem, BatchStatus, ItemStatus, Job, JobStatus

LEASE = timedelta(seconds=120)
MAX_AHEAD = 1000
"""Unfinished jobs of one batch: the rest waits in its manifest, not in queue and tables."""

MAY_PASS = (NotFound, UploadIncomplete)
"""What may have come by the time of a retry. What a line says wrongly stays wrong."""

ACTIVE = (JobStatus.QUEUED, JobStatus.RUNNING)
ENDED_BADLY = (JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line that was read and whose media was looked for.

    Attributes:
        end: What `position` becomes; `key` what `last_key` becomes.
        error: Why it cannot become a job.
    """

    line: ParsedLine
    end: int = 0
    key: str | None = None
    make_media: MediaMaker | None = None
    error: ScriptoriumError | None = None


def claim_batch(uow: UnitOfWork, batch_id: UUID, *, now: datetime) -> Batch | None:
    """Take a batch, or return None if somebody works on it or it is gone."""
    batch = lock_batch(uow.session, batch_id)
    if batch is None or (batch.lease_expires_at is not None and batch.lease_expires_at > now):
        return None
    if batch.status == BatchStatus.QUEUED:
        batch.move_to(BatchStatus.RUNNING, now=now)
    batch.attempt += 1
    batch.lease_expires_at = now + LEASE
    return batch


def lock_claimed(session: Session, claim: Batch, *, now: datetime) -> Batch:
    """Lock the batch for whoever claimed it, and prolong the claim.

    Raises:
        LeaseLost: Somebody else has claimed it since.
    """
    batch = lock_batch(session, claim.id)
    if batch is None or batch.attempt != claim.attempt or batch.lease_expires_at is None:
        raise LeaseLost(f"Attempt {claim.attempt} no longer owns batch {claim.id}.")
    batch.lease_expires_at = now + LEASE
    return batch


def add_items(
    uow: UnitOfWork, intake: Intake, claim: Batch, entries: Sequence[Entry], *, now: datetime
) -> bool:
    """Add items and their jobs; return False where the rest has to wait for room.

    Raises:
        LeaseLost: See `lock_claimed`.
    """
    batch = lock_claimed(uow.session, claim, now=now)
    is_cancelled = batch.cancel_requested_at is not None
    room = MAX_AHEAD - num_active(uow.session, batch.id)
    taken = _taken_names(uow.session, batch.id, entries)
    jobs = _NewJobs(uow, intake, batch, now=now)
    for entry in entries:
        item = BatchItem(
            batch_id=batch.id,
            index=batch.next_index,
            custom_id=entry.line.custom_id,
            status=ItemStatus.OPEN,
        )
        if is_cancelled:
            item.status = ItemStatus.CANCELLED
        elif entry.error is not None or entry.line.custom_id in taken:
            _reject(item, entry.error or _doubled(entry.line), entry.line)
        elif room <= 0 or not jobs.add(item, entry):
            jobs.announce()
            return False
        else:
            room -= 1
        if entry.line.custom_id is not None:
            taken.add(entry.line.custom_id)
        uow.session.add(item)
        batch.next_index += 1
        batch.position, batch.last_key = entry.end, entry.key
    jobs.announce()
    return True


def lines_to_submit_again(session: Session, batch_id: UUID, *, limit: int) -> Sequence[BatchItem]:
    """Return open items that are no jobs yet: lines that failed and were asked to go again."""
    return session.scalars(
        select(BatchItem)
        .where(
            BatchItem.batch_id == batch_id,
            BatchItem.status == ItemStatus.OPEN,
            BatchItem.line.is_not(None),
        )
        .order_by(BatchItem.index)
        .limit(limit)
    ).all()


def submit_again(
    uow: UnitOfWork,
    intake: Intake,
    claim: Batch,
    entries: Mapping[int, Entry],
    *,
    now: datetime,
) -> bool:
    """Make jobs of items that `lines_to_submit_again` gave; return False where there is no room.

    Args:
        entries: By the items' index.

    Raises:
        LeaseLost: See `lock_claimed`.
    """
    batch = lock_claimed(uow.session, claim, now=now)
    room = MAX_AHEAD - num_active(uow.session, batch.id)
    jobs = _NewJobs(uow, intake, batch, now=now)
    for index, entry in entries.items():
        item = uow.session.get_one(BatchItem, (batch.id, index), populate_existing=True)
        if batch.cancel_requested_at is not None:
            item.status, item.line = ItemStatus.CANCELLED, None
        elif entry.error is not None:
            _reject(item, entry.error, entry.line)
        elif room <= 0 or not jobs.add(item, entry):
            jobs.announce()
            return False
        else:
            room -= 1
    jobs.announce()
    return True


def num_active(session: Session, batch_id: UUID) -> int:
    """Return how many jobs of the batch have not ended."""
    count = session.scalar(
        select(func.count()).where(Job.batch_id == batch_id, Job.status.in_(ACTIVE))
    )
    return int(count or 0)


def jobs_to_retry(session: Session, batch_id: UUID, *, limit: int) -> list[UUID]:
    """Return jobs that ended badly although their items are open: those were asked to go again."""
    return list(
        session.scalars(
            select(BatchItem.job_id)
            .join(Job, Job.id == BatchItem.job_id)
            .where(
                BatchItem.batch_id == batch_id,
                BatchItem.status == ItemStatus.OPEN,
                Job.status.in_(ENDED_BADLY),
            )
            .limit(limit)
        )
    )


def jobs_to_cancel(session: Session, batch_id: UUID, *, limit: int) -> list[UUID]:
    """Return jobs of a batch that have not ended."""
    return list(
        session.scalars(
            select(Job.id).where(Job.batch_id == batch_id, Job.status.in_(ACTIVE)).limit(limit)
        )
    )


def finish_expansion(uow: UnitOfWork, claim: Batch, *, now: datetime) -> Batch:
    """Record that every line is an item and every retry was begun.

    Raises:
        LeaseLost: See `lock_claimed`.
    """
    batch = lock_claimed(uow.session, claim, now=now)
    batch.num_lines = batch.next_index
    batch.expanded_at = batch.expanded_at or now
    return batch


def release_batch(uow: UnitOfWork, claim: Batch) -> None:
    """Give up a claim; nothing happens if it was lost."""
    batch = lock_batch(uow.session, claim.id)
    if batch is not None and batch.attempt == claim.attempt:
        batch.lease_expires_at = None


def list_waiting_batches(session: Session, *, limit: int, now: datetime) -> list[UUID]:
    """Return batches with something to do that nobody works on."""
    has_open = exists().where(BatchItem.batch_id == Batch.id, BatchItem.status == ItemStatus.OPEN)
    final = (BatchStatus.COMPLETED, BatchStatus.CANCELLED)
    return list(
        session.scalars(
            select(Batch.id)
            .where(
                or_(Batch.lease_expires_at.is_(None), Batch.lease_expires_at < now),
                or_(
                    Batch.status == BatchStatus.QUEUED,
                    and_(
                        Batch.status == BatchStatus.RUNNING,
                        or_(
                            Batch.expanded_at.is_(None),
                            Batch.cancel_requested_at.is_not(None),
                            ~has_open,
                        ),
                    ),
                    and_(Batch.status.in_(final), Batch.results_round < Batch.round),
                ),
            )
            .order_by(func.coalesce(Batch.lease_expires_at, Batch.created_at))
            .limit(limit)
        )
    )


class _NewJobs:
    """The jobs that one transaction makes of a batch's lines; their rows are inserted together."""

    def __init__(self, uow: UnitOfWork, intake: Intake, batch: Batch, *, now: datetime) -> None:
        self._uow = uow
        self._intake = intake
        self._batch = batch
        self._now = now
        self._jobs: list[Job] = []
        # Held, so that the session does not forget it: each line asks for the key's limits.
        self._key = uow.session.get_one(ApiKey, batch.key_id)

    def add(self, item: BatchItem, entry: Entry) -> bool:
        """Make the item's job or reject it; return False if the key may have no more jobs."""
        if entry.make_media is None or entry.line.request is None:
            raise ValueError("an entry without an error has media and a request")
        try:
            job = add_within_limits(
                self._uow,
                self._intake,
                self._key.id,
                entry.make_media,
                entry.line.request.submission,
                now=self._now,
                batch_id=self._batch.id,
            )
        except LimitExceeded:
            return False
        except (InvalidInput, NotFound) as exc:
            _reject(item, exc, entry.line)
        else:
            item.job_id, item.line = job.id, None
            self._jobs.append(job)
        return True

    def announce(self) -> None:
        """Insert the rows and record what tells of them."""
        self._uow.session.flush()
        for job in self._jobs:
            announce_job(self._uow, self._intake.queue, self._intake.publisher, job, now=self._now)


def _reject(item: BatchItem, error: ScriptoriumError, line: ParsedLine) -> None:
    item.status = ItemStatus.FAILED
    item.error_code, item.error_message = error.code, str(error)[:2000]
    item.line = line.raw if isinstance(error, MAY_PASS) else None


def _doubled(line: ParsedLine) -> InvalidOption:
    return InvalidOption(
        f"custom_id: {line.custom_id!r} stands in an earlier line", param="custom_id"
    )


def _taken_names(session: Session, batch_id: UUID, entries: Sequence[Entry]) -> set[str]:
    names = [entry.line.custom_id for entry in entries if entry.line.custom_id is not None]
    known = session.scalars(
        select(BatchItem.custom_id).where(
            BatchItem.batch_id == batch_id, BatchItem.custom_id.in_(names)
        )
    )
    return {name for name in known if name is not None}
