"""Batches: the manifest goes into storage as it arrives; workers make jobs of it."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from fastapi import Request
from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from api.batch_schemas import PrefixBatch
from api.context import ApiContext
from api.uploads import BLOCK_BYTES, check_room, in_thread, in_threads
from core.db import UnitOfWork
from core.errors import Conflict, InvalidOption, MediaTooLarge
from core.ndjson import LineCounter
from core.outbound import check_url
from core.settings import Settings
from core.signing import check_secret
from core.storage.base import ObjectWriter
from lifecycle.batches import errors_key, manifest_key, results_key
from lifecycle.deliveries import forget_deliveries
from lifecycle.idempotency import forget_answers
from lifecycle.jobs import delete_object
from lifecycle.manifest import check_defaults
from lifecycle.submissions import check_text
from models import Batch, BatchItem, BatchStatus, ItemStatus

MAX_MANIFEST_BYTES = 4 << 30
RETRYABLE = (BatchStatus.COMPLETED, BatchStatus.CANCELLED)


@dataclass(slots=True)
class StoredManifest:
    """A manifest that lies in storage while no row names it yet."""

    key: str
    num_lines: int
    sha256: str


@dataclass(slots=True)
class _Sink:
    """Writes the body to storage, hashing it and counting its lines."""

    settings: Settings
    writer: ObjectWriter
    counter: LineCounter = field(default_factory=LineCounter)
    digest: Any = field(default_factory=hashlib.sha256)
    num_bytes: int = 0

    def write(self, block: bytes) -> None:
        """Take a block; blocks on storage."""
        check_room(self.settings)
        self.counter.feed(block)
        self.digest.update(block)
        self.writer.write(block)


async def receive_manifest(request: Request, context: ApiContext, batch_id: UUID) -> StoredManifest:
    """Store the request's body; nothing of it is left if this raises.

    Raises:
        MediaTooLarge: It exceeds `MAX_MANIFEST_BYTES`.
        ClientDisconnect: The caller left.
    """
    key = manifest_key(batch_id)
    opening = context.storage.writer(key, content_type="application/x-ndjson")
    async with in_threads(context.upload_threads, opening) as writer:
        sink = _Sink(settings=context.settings, writer=writer)
        block = bytearray()
        async for chunk in request.stream():
            sink.num_bytes += len(chunk)
            if sink.num_bytes > MAX_MANIFEST_BYTES:
                raise MediaTooLarge(f"A manifest has at most {MAX_MANIFEST_BYTES} bytes.")
            block += chunk
            if len(block) >= BLOCK_BYTES:
                await in_thread(context.upload_threads, partial(sink.write, bytes(block)))
                block = bytearray()
        await in_thread(context.upload_threads, partial(sink.write, bytes(block)))
    return StoredManifest(key=key, num_lines=sink.counter.count, sha256=sink.digest.hexdigest())


def parse_defaults(settings: Settings, text: str | None) -> dict[str, Any]:
    """Return the batch's options from the query parameter `options`.

    Raises:
        InvalidOption: They are no JSON object, or one of them cannot be used.
    """
    if text is None:
        return {}
    try:
        defaults = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidOption("options: not valid JSON", param="options") from exc
    if not isinstance(defaults, dict):
        raise InvalidOption("options: must be a JSON object", param="options")
    check_defaults(settings, defaults)
    return defaults


def check_webhook(settings: Settings, url: str | None, secret: str | None) -> None:
    """Refuse a webhook that cannot be used.

    Raises:
        InvalidOption: See `core.outbound.check_url` and `core.signing.check_secret`.
    """
    if url is not None:
        check_url(url, allow_private=settings.webhook_allow_private, param="webhook_url")
    if secret is not None:
        check_secret(secret, param="webhook_secret")


def check_prefix_batch(settings: Settings, body: PrefixBatch) -> None:
    """Refuse a prefix outside of what callers may read.

    Raises:
        InvalidOption: It is, or an option cannot be used.
    """
    for name, text in (("prefix", body.prefix), ("glob", body.glob)):
        check_text(text, param=name)
    if not body.prefix.startswith(settings.media_key_prefix):
        raise InvalidOption(
            f"prefix: must begin with {settings.media_key_prefix!r}", param="prefix"
        )
    check_defaults(settings, body.options)
    check_webhook(settings, body.webhook_url, body.webhook_secret)


def record_batch(uow: UnitOfWork, context: ApiContext, batch: Batch) -> Batch:
    """Add the batch and, once it is durable, wake a worker for it."""
    uow.session.add(batch)
    uow.session.flush()
    uow.after_commit(partial(context.queue.expand, batch.id))
    return batch


def retry_batch(uow: UnitOfWork, context: ApiContext, batch: Batch, *, now: datetime) -> int:
    """Open the items again that failed; a worker retries their jobs.

    Lines that never became a job are read again if what was missing may have come. Others stay as
    they are: the same line would fail again.

    Returns:
        How many items were opened.

    Raises:
        InvalidTransition: The batch has not ended, or failed as a whole.
    """
    is_failed = (
        BatchItem.batch_id == batch.id,
        BatchItem.status == ItemStatus.FAILED,
        or_(BatchItem.job_id.is_not(None), BatchItem.line.is_not(None)),
    )
    num_items = uow.session.scalar(select(func.count()).where(*is_failed)) or 0
    if not num_items and BatchStatus(batch.status) in RETRYABLE:
        return 0
    batch.move_to(BatchStatus.RUNNING, now=now)
    batch.expanded_at = None
    batch.cancel_requested_at = None
    batch.round += 1
    uow.session.execute(
        update(BatchItem)
        .where(*is_failed)
        .values(status=ItemStatus.OPEN, error_code=None, error_message=None)
        .execution_options(synchronize_session=False)
    )
    uow.after_commit(partial(context.queue.expand, batch.id))
    return num_items


def delete_batch(uow: UnitOfWork, context: ApiContext, batch: Batch) -> None:
    """Delete an ended batch and its stored results; its jobs stay until they are deleted.

    Raises:
        Conflict: It has not ended.
    """
    if not BatchStatus(batch.status).is_final:
        raise Conflict("The batch has not ended; cancel it first.")
    uow.session.execute(delete(Batch).where(Batch.id == batch.id))
    forget_deliveries(uow.session, [batch.id], keep_unsent=False)
    forget_answers(uow.session, [batch.id])
    for key in (manifest_key(batch.id), results_key(batch.id), errors_key(batch.id)):
        uow.after_commit(partial(delete_object, context.storage, key))


def cancel_batch(uow: UnitOfWork, context: ApiContext, batch: Batch, *, now: datetime) -> None:
    """Ask for the end of a batch; a worker cancels its jobs and marks what is left of its lines.

    Raises:
        InvalidTransition: It has ended.
    """
    if BatchStatus(batch.status).is_final:
        batch.move_to(BatchStatus.CANCELLED, now=now)  # raises: there is no such edge
    batch.cancel_requested_at = batch.cancel_requested_at or now
    uow.after_commit(partial(context.queue.expand, batch.id))


def list_items(
    session: Session, batch_id: UUID, *, status: ItemStatus | None, after: int, limit: int
) -> list[BatchItem]:
    """Return items in the manifest's order."""
    statement = select(BatchItem).where(BatchItem.batch_id == batch_id, BatchItem.index > after)
    if status is not None:
        statement = statement.where(BatchItem.status == status)
    return list(session.scalars(statement.order_by(BatchItem.index).limit(limit)))
