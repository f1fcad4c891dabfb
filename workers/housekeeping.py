"""What goes by itself: uploads nobody used, old answers and deliveries, objects without a row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice

import structlog
from sqlalchemy.orm import Session

from core.db import read_session, unit_of_work
from core.storage import ObjectInfo
from lifecycle.deliveries import expire_deliveries
from lifecycle.expansion import list_waiting_batches
from lifecycle.idempotency import expire_answers
from lifecycle.jobs import delete_object
from lifecycle.leftovers import find_unused_batches, find_unused_transcripts, find_unused_uploads
from lifecycle.uploads import expire_uploads
from workers.context import WorkerContext

log = structlog.get_logger(__name__)

PAGE = 200
MAX_NUDGES = 20
UNUSED_AFTER = timedelta(hours=1)
"""An object may be written before the row that names it is committed."""

FindUnused = Callable[[Session, Sequence[str]], list[str]]


def expire(context: WorkerContext) -> None:
    """Remove rows whose time is over, and their objects; bounded, for every sweep."""
    with unit_of_work(context.sessions) as uow:
        num_uploads = expire_uploads(uow, context.storage, now=context.now())
        expire_answers(uow.session, now=context.now())
        expire_deliveries(uow.session, now=context.now())
    if num_uploads:
        log.info("uploads.expired", num_uploads=num_uploads)


def nudge_batches(context: WorkerContext) -> None:
    """Send messages for batches that wait for somebody to go on with them; doubles are harmless."""
    with read_session(context.sessions) as session:
        waiting = list_waiting_batches(session, limit=MAX_NUDGES, now=context.now())
    for batch_id in waiting:
        context.queue.expand(batch_id)


def tidy_objects(context: WorkerContext) -> int:
    """Delete objects of jobs, uploads and batches that are gone; return how many there were."""
    finders: dict[str, FindUnused] = {
        "transcripts/": find_unused_transcripts,
        "uploads/": find_unused_uploads,
        "batches/": find_unused_batches,
    }
    num_deleted = 0
    for prefix, find_unused in finders.items():
        for page in _pages(_old(context, context.storage.list(prefix))):
            with read_session(context.sessions) as session:
                unused = find_unused(session, page)
            for key in unused:
                delete_object(context.storage, key)
            num_deleted += len(unused)
    if num_deleted:
        log.info("objects.deleted", num_objects=num_deleted)
    return num_deleted


def _old(context: WorkerContext, infos: Iterable[ObjectInfo]) -> Iterator[str]:
    newest = context.now() - UNUSED_AFTER
    return (info.key for info in infos if info.modified_at < newest)


def _pages(keys: Iterator[str]) -> Iterator[list[str]]:
    while page := list(islice(keys, PAGE)):
        yield page
