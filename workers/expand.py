"""Turns a batch's manifest into jobs, a few lines at a time, and writes its results at the end."""

import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from uuid import UUID

import structlog

from core.db import read_session, unit_of_work
from core.errors import LeaseLost, MediaGone, ScriptoriumError, Transient
from core.ndjson import iter_lines
from lifecycle.batches import errors_key, lock_batch, results_key, settle_batch
from lifecycle.expansion import (
    Entry,
    add_items,
    claim_batch,
    finish_expansion,
    jobs_to_cancel,
    jobs_to_retry,
    lines_to_submit_again,
    lock_claimed,
    release_batch,
    submit_again,
)
from lifecycle.intake import Intake, find_media
from lifecycle.jobs import cancel_job, delete_object, get_job, retry_job
from lifecycle.manifest import MAX_LINE_BYTES, ParsedLine, parse_again, parse_key, parse_line
from lifecycle.results import iter_results
from models import Batch, BatchStatus, ItemStatus
from workers.context import WorkerContext

log = structlog.get_logger(__name__)

LINES_PER_TRANSACTION = 50
"""SQLite has one writer: nobody else's claim should wait for more than a fraction of a second."""

JOBS_PER_LOOK = 100
SLICE_S = 20.0


def expand(context: WorkerContext, batch_id: UUID) -> None:
    """Do what the batch needs next, for a while; harmless if that is nothing."""
    with unit_of_work(context.sessions) as uow:
        batch = claim_batch(uow, batch_id, now=context.now())
    if batch is None:
        return
    with structlog.contextvars.bound_contextvars(batch_id=str(batch_id)):
        try:
            has_more = Expander(context, batch).run(deadline=time.monotonic() + SLICE_S)
        except LeaseLost as exc:
            log.warning("batch.abandoned", reason=str(exc))
            return
        except Transient as exc:
            log.warning("batch.delayed", error=str(exc))
            has_more = False
    with unit_of_work(context.sessions) as uow:
        release_batch(uow, batch)
    if has_more:
        context.queue.expand(batch_id)


class Expander:
    """One claim of one batch."""

    def __init__(self, context: WorkerContext, batch: Batch) -> None:
        self._context = context
        self._batch = batch
        self._intake = Intake(
            settings=context.settings,
            sessions=context.sessions,
            storage=context.storage,
            queue=context.queue,
            publisher=context.publisher,
        )

    def run(self, *, deadline: float) -> bool:
        """Return whether it stopped at `deadline` with more to do at once."""
        batch = self._batch
        if batch.cancel_requested_at is not None and not self._cancel_jobs(deadline):
            return True
        if batch.status == BatchStatus.RUNNING and batch.expanded_at is None:
            try:
                if not self._add_lines(deadline):
                    return time.monotonic() >= deadline
            except MediaGone as exc:
                self._fail(exc)
                return False
            if not self._submit_again(deadline):
                return time.monotonic() >= deadline
            if batch.cancel_requested_at is None and not self._retry_jobs(deadline):
                return True
        self._settle()
        return False

    def _settle(self) -> None:
        """End the batch if nothing is left, and write the results of one that has ended."""
        context, now = self._context, self._context.now()
        with unit_of_work(context.sessions) as uow:
            batch = lock_claimed(uow.session, self._batch, now=now)
            # A retry that was asked for meanwhile is another claim's work.
            is_same = batch.round == self._batch.round
            if batch.status == BatchStatus.RUNNING and is_same:
                finish_expansion(uow, batch, now=now)
                settle_batch(uow, context.publisher, batch, now=now)
                if batch.manifest_key is not None:  # it may hold URLs and headers that are secrets
                    delete = partial(delete_object, context.storage, batch.manifest_key)
                    uow.after_commit(delete)
        if BatchStatus(batch.status).is_final and batch.results_round < batch.round:
            self._write_results(batch.round)

    def _add_lines(self, deadline: float) -> bool:
        """Return whether every line is an item now."""
        entries = self._entries()
        while True:
            chunk = list(islice(entries, LINES_PER_TRANSACTION))
            if not chunk:
                return True
            with unit_of_work(self._context.sessions) as uow:
                has_room = add_items(uow, self._intake, self._batch, chunk, now=self._context.now())
            if not has_room or time.monotonic() >= deadline:
                return False

    def _submit_again(self, deadline: float) -> bool:
        """Return whether no line waits any more that was no job and was asked to go again."""
        context, batch = self._context, self._batch
        while time.monotonic() < deadline:
            with read_session(context.sessions) as session:
                items = lines_to_submit_again(session, batch.id, limit=LINES_PER_TRANSACTION)
            if not items:
                return True
            entries = {
                item.index: self._look(
                    parse_again(context.settings, item.custom_id, item.line or {}, batch.defaults)
                )
                for item in items
            }
            with unit_of_work(context.sessions) as uow:
                if not submit_again(uow, self._intake, batch, entries, now=context.now()):
                    return False
        return False

    def _entries(self) -> Iterator[Entry]:
        batch = self._batch
        storage, settings = self._context.storage, self._context.settings
        if batch.num_lines == batch.next_index:
            return  # all of it was read before; the manifest is gone
        if batch.manifest_key is not None:
            blocks = storage.chunks(batch.manifest_key, start=batch.position)
            lines = iter_lines(blocks, start=batch.position, max_bytes=MAX_LINE_BYTES)
            for line in lines:
                parsed = parse_line(settings, line.data, batch.defaults)
                yield self._look(parsed, end=line.end)
            return
        prefix = batch.prefix or ""
        for info in storage.list(prefix):
            is_new = batch.last_key is None or info.key > batch.last_key
            if is_new and fnmatchcase(info.key.removeprefix(prefix), batch.glob or "*"):
                yield self._look(parse_key(settings, info.key, batch.defaults), key=info.key)

    def _look(self, line: ParsedLine, *, end: int = 0, key: str | None = None) -> Entry:
        """Look for the media of a line; what does not pass by trying again rejects the line."""
        if line.request is None:
            return Entry(line=line, end=end, key=key, error=line.error)
        try:
            make_media = find_media(
                self._intake, self._batch.key_id, line.request.source, now=self._context.now()
            )
        except Transient:
            raise
        except ScriptoriumError as exc:
            return Entry(line=line, end=end, key=key, error=exc)
        return Entry(line=line, end=end, key=key, make_media=make_media)

    def _retry_jobs(self, deadline: float) -> bool:
        """Return whether no item waits for its retry any more."""
        while time.monotonic() < deadline:
            with read_session(self._context.sessions) as session:
                job_ids = jobs_to_retry(session, self._batch.id, limit=JOBS_PER_LOOK)
            if not job_ids:
                return True
            for job_id in job_ids:
                self._retry_job(job_id)
        return False

    def _retry_job(self, job_id: UUID) -> None:
        context = self._context
        try:
            with unit_of_work(context.sessions) as uow:
                job = get_job(uow.session, None, job_id)
                retry_job(uow, context.queue, context.publisher, job, now=context.now())
        except ScriptoriumError as exc:  # somebody was faster: retried or deleted it
            log.info("job.not_retried", job_id=str(job_id), error_code=exc.code)

    def _cancel_jobs(self, deadline: float) -> bool:
        """Return whether every job has ended."""
        context = self._context
        while time.monotonic() < deadline:
            with read_session(context.sessions) as session:
                job_ids: Sequence[UUID] = jobs_to_cancel(
                    session, self._batch.id, limit=JOBS_PER_LOOK
                )
            if not job_ids:
                return True
            for job_id in job_ids:
                try:
                    with unit_of_work(context.sessions) as uow:
                        job = get_job(uow.session, None, job_id)
                        cancel_job(uow, context.publisher, job, now=context.now())
                except ScriptoriumError as exc:  # it ended by itself, or is gone
                    log.info("job.not_cancelled", job_id=str(job_id), error=str(exc))
        return False

    def _fail(self, error: ScriptoriumError) -> None:
        with unit_of_work(self._context.sessions) as uow:
            batch = lock_claimed(uow.session, self._batch, now=self._context.now())
            batch.move_to(
                BatchStatus.FAILED, now=self._context.now(), error=(error.code, str(error))
            )

    def _write_results(self, number: int) -> None:
        """Write both result files; a retry replaces them."""
        files = {
            results_key(self._batch.id): None,
            errors_key(self._batch.id): (ItemStatus.FAILED,),
        }
        for key, statuses in files.items():
            lines = iter_results(self._context.sessions, self._batch.id, statuses=statuses)
            with self._context.storage.writer(key, content_type="application/x-ndjson") as writer:
                for line in lines:
                    writer.write(line)
        with unit_of_work(self._context.sessions) as uow:
            batch = lock_batch(uow.session, self._batch.id)
            if batch is not None:
                batch.results_round = number
        log.info("batch.results_written", round=number)
