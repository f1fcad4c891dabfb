"""The second way for everything: puts lost work back, deletes what expired.

A sweep may run twice at once or not at all for a while: each step looks at rows again under their
lock. Each is bounded, so that a backlog is worked off over several sweeps.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from typing import Protocol

import structlog

from core.db import read_session, unit_of_work
from core.queues import DELIVERY_QUEUE, MEDIA_QUEUE
from core.storage import ObjectInfo
from lifecycle.jobs import delete_object, lock_job, purge_job
from lifecycle.leftovers import find_unused_media, find_unused_windows
from lifecycle.recovery import (
    list_expired_jobs,
    list_expired_stages,
    list_jobs_with_expired_windows,
    list_waiting_adapters,
    list_waiting_stages,
    recover_windows,
)
from lifecycle.stages import expire_stage
from models import JobStage
from workers.context import WorkerContext
from workers.housekeeping import expire, nudge_batches, tidy_objects

log = structlog.get_logger(__name__)

MAX_PER_STEP = 100
PURGES = 20
TIDY_PAGE = 200
UNUSED_AFTER = timedelta(hours=1)
"""An upload has its object before it has its row; so have windows."""


class Depths(Protocol):
    """Knows how many messages wait."""

    def depth(self, queue: str) -> int:
        """Return how many messages wait in `queue`."""
        ...


def sweep(context: WorkerContext, depths: Depths) -> None:
    """Look once for everything that lost its message, its lease, or its time."""
    _recover_stages(context)
    _recover_windows(context)
    _nudge_stages(context, depths)
    _nudge_engines(context)
    if depths.depth(DELIVERY_QUEUE) == 0:
        context.queue.deliver()
    nudge_batches(context)
    _purge(context)
    expire(context)


def tidy(context: WorkerContext) -> None:
    """Delete objects that no row needs; looks at every object, so it runs rarely.

    What dead writers left half-way goes first: it is no object yet, and a disk may be full of it.
    """
    if num_leftovers := context.storage.remove_leftovers():
        log.info("leftovers.removed", num_leftovers=num_leftovers)
    for page in _pages(context.storage.list("windows/")):
        by_job = {
            name: [info.key for info in infos]
            for name, infos in groupby(page, key=lambda info: info.key.split("/")[1])
        }
        with read_session(context.sessions) as session:
            unused = find_unused_windows(
                session, list(by_job), ended_before=context.now() - timedelta(days=1)
            )
        _delete(context, [key for name in unused for key in by_job[name]])
    for page in _pages(context.storage.list("media/")):
        old = [i.key for i in page if i.modified_at < context.now() - UNUSED_AFTER]
        with read_session(context.sessions) as session:
            unused_media = find_unused_media(session, old)
        _delete(context, unused_media)
    tidy_objects(context)


def _recover_stages(context: WorkerContext) -> None:
    with read_session(context.sessions) as session:
        expired = list_expired_stages(session, limit=MAX_PER_STEP, now=context.now())
    for job_id in expired:
        with unit_of_work(context.sessions) as uow:
            has_expired = expire_stage(
                uow,
                context.publisher,
                job_id,
                max_attempts=context.settings.max_attempts,
                now=context.now(),
            )
        if has_expired:
            log.warning("stage.expired", job_id=str(job_id))


def _recover_windows(context: WorkerContext) -> None:
    with read_session(context.sessions) as session:
        job_ids = list_jobs_with_expired_windows(session, limit=MAX_PER_STEP, now=context.now())
    for job_id in job_ids:
        with unit_of_work(context.sessions) as uow:
            num_windows = recover_windows(
                uow,
                context.publisher,
                context.queue,
                job_id,
                max_attempts=context.settings.max_attempts,
                now=context.now(),
            )
        if num_windows:
            log.warning("windows.expired", job_id=str(job_id), num_windows=num_windows)


def _nudge_stages(context: WorkerContext, depths: Depths) -> None:
    """Send messages for waiting jobs, as many as the queue is short of.

    Which of them still have a message cannot be known; doubles are harmless, and the queue holds
    at most `MAX_PER_STEP` messages of ours beyond those that submissions send.
    """
    with read_session(context.sessions) as session:
        waiting = list_waiting_stages(session, limit=MAX_PER_STEP, now=context.now())
    missing = len(waiting) - depths.depth(MEDIA_QUEUE) if waiting else 0
    for stage in waiting[: max(0, missing)]:
        if stage.stage is JobStage.FINISH:
            context.queue.finish(stage.job_id)
        else:
            context.queue.prepare(stage.job_id, priority=stage.priority)


def _nudge_engines(context: WorkerContext) -> None:
    with read_session(context.sessions) as session:
        adapters = list_waiting_adapters(session)
    for adapter in adapters:
        context.queue.wake(adapter)


def _purge(context: WorkerContext) -> None:
    with read_session(context.sessions) as session:
        expired = list_expired_jobs(session, limit=PURGES, now=context.now())
    for job_id in expired:
        with unit_of_work(context.sessions) as uow:
            job = lock_job(uow.session, job_id)
            if job is not None and job.delete_at is not None and job.delete_at <= context.now():
                purge_job(uow, context.storage, job, keep_unsent_deliveries=True)
                log.info("job.purged", job_id=str(job_id))


def _pages(infos: Iterator[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    page: list[ObjectInfo] = []
    for info in infos:
        page.append(info)
        if len(page) == TIDY_PAGE:
            yield page
            page = []
    if page:
        yield page


def _delete(context: WorkerContext, keys: list[str]) -> None:
    for key in keys:
        delete_object(context.storage, key)
    if keys:
        log.info("objects.deleted", num_objects=len(keys))
