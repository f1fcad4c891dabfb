"""Batches: many recordings with one manifest."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response, status
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from api import batches
from api.batch_schemas import BatchPage, DryRunView, ItemPage, ItemView, PrefixBatch
from api.batches import StoredManifest
from api.context import ApiContext
from api.deps import Caller, Context, Reader, Reading, Submitter, Uow, now
from api.dry_run import preview_manifest, preview_prefix
from api.idempotency import IdempotencyKey, create_once, parse_once
from api.ids import parse_cursor, parse_id
from api.openapi import batch_body
from api.submissions import read_json_object
from api.uploads import in_thread, read_body
from core.db import unit_of_work
from core.errors import InvalidOption
from core.ids import new_id
from lifecycle.batches import BatchView
from lifecycle.idempotency import Once
from lifecycle.owned import get_owned
from lifecycle.results import describe_item, find_jobs, iter_results
from models import Batch, ItemStatus

router = APIRouter(prefix="/v1/batches", tags=["batches"])

NDJSON = "application/x-ndjson"
NDJSON_TYPES = frozenset({NDJSON, "application/jsonl", "application/ndjson"})
MAX_JSON_BYTES = 1 << 20
MAX_OPTIONS_CHARS = 16_384
"""The server takes no URL beyond 64 KiB; longer prompts have room in the lines."""

_RESULTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One JSON object a line.",
        "content": {NDJSON: {"schema": {"type": "string"}}},
    }
}


@router.post(
    "",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=BatchView | DryRunView,
    responses={200: {"model": DryRunView, "description": "What `dry_run` found."}},
    openapi_extra={"requestBody": batch_body()},
)
async def create_batch(
    request: Request,
    response: Response,
    context: Context,
    caller: Submitter,
    *,
    dry_run: bool = False,
    options: Annotated[
        str | None,
        Query(max_length=MAX_OPTIONS_CHARS, description="Job options as JSON, for every line."),
    ] = None,
    webhook_url: Annotated[str | None, Query(max_length=2048)] = None,
    idempotency_key: IdempotencyKey = None,
) -> BatchView | DryRunView:
    """Accept a manifest (NDJSON, one job a line), or a prefix of stored objects (JSON).

    With `dry_run` nothing is created; the answer says what would be.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in NDJSON_TYPES:
        defaults = batches.parse_defaults(context.settings, options)
        batches.check_webhook(context.settings, webhook_url, None)
        batch_id = new_id()
        stored = await batches.receive_manifest(request, context, batch_id)
        asked = {"options": defaults, "webhook_url": webhook_url, "sha256": stored.sha256}
        batch = _manifest_batch(caller, batch_id, stored, defaults, webhook_url)
        preview = partial(preview_manifest, context, caller.key_id, stored, defaults, now=now())
    else:
        raw = read_json_object(await read_body(request, max_bytes=MAX_JSON_BYTES))
        body = _parse_prefix(raw)
        batches.check_prefix_batch(context.settings, body)
        asked = raw
        batch = _prefix_batch(caller, body)
        preview = partial(preview_prefix, context, caller.key_id, body, now=now())
    if dry_run:
        response.status_code = status.HTTP_200_OK
        return await in_thread(context.upload_threads, preview)
    once = parse_once(request, caller, idempotency_key, asked)
    view = await in_thread(context.upload_threads, partial(_record, context, batch, once))
    response.headers["Location"] = _location(view.id)
    return view


@router.get("")
def list_batches(
    session: Reading,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=64)] = None,
) -> BatchPage:
    """List the caller's batches, newest first."""
    statement = select(Batch).where(Batch.key_id == caller.key_id)
    before = parse_cursor(cursor)
    if before is not None:
        statement = statement.where(Batch.id < before)
    rows = session.scalars(statement.order_by(Batch.id.desc()).limit(limit + 1)).all()
    at = now()
    return BatchPage(
        data=[BatchView.of(session, row, now=at) for row in rows[:limit]],
        next_cursor=str(rows[limit - 1].id) if len(rows) > limit else None,
    )


@router.get("/{batch_id}")
def show_batch(session: Reading, caller: Reader, batch_id: str) -> BatchView:
    """Show a batch with counts, progress and estimated time."""
    batch = _get(session, caller, batch_id)
    return BatchView.of(session, batch, now=now())


@router.get("/{batch_id}/jobs")
def list_items(
    session: Reading,
    caller: Reader,
    batch_id: str,
    *,
    status: ItemStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=20)] = None,
) -> ItemPage:
    """List the items in the manifest's order, bad lines included."""
    batch = _get(session, caller, batch_id)
    items = batches.list_items(
        session, batch.id, status=status, after=_parse_index(cursor), limit=limit + 1
    )
    page = items[:limit]
    jobs = find_jobs(session, page)
    data = [
        ItemView(**describe_item(item, jobs.get(item.job_id) if item.job_id is not None else None))
        for item in page
    ]
    return ItemPage(data=data, next_cursor=str(page[-1].index) if len(items) > limit else None)


@router.get("/{batch_id}/results", responses=_RESULTS, response_class=StreamingResponse)
def stream_results(
    session: Reading, context: Context, caller: Reader, batch_id: str
) -> StreamingResponse:
    """Stream a line for each item, in the manifest's order; also while the batch runs."""
    batch = _get(session, caller, batch_id)
    return _ndjson(iter_results(context.sessions, batch.id))


@router.get("/{batch_id}/errors", responses=_RESULTS, response_class=StreamingResponse)
def stream_errors(
    session: Reading, context: Context, caller: Reader, batch_id: str
) -> StreamingResponse:
    """Stream the lines of failed items only."""
    batch = _get(session, caller, batch_id)
    return _ndjson(iter_results(context.sessions, batch.id, statuses=(ItemStatus.FAILED,)))


@router.post("/{batch_id}/retry", status_code=status.HTTP_202_ACCEPTED)
def retry(uow: Uow, context: Context, caller: Submitter, batch_id: str) -> BatchView:
    """Run the failed jobs of an ended batch again; everything else stays."""
    batch = _get(uow.session, caller, batch_id, lock=True)
    batches.retry_batch(uow, context, batch, now=now())
    uow.session.flush()
    return BatchView.of(uow.session, batch, now=now())


@router.post("/{batch_id}/cancel", status_code=status.HTTP_202_ACCEPTED)
def cancel(uow: Uow, context: Context, caller: Submitter, batch_id: str) -> BatchView:
    """Cancel what has not ended; the batch is cancelled once its jobs are."""
    batch = _get(uow.session, caller, batch_id, lock=True)
    batches.cancel_batch(uow, context, batch, now=now())
    return BatchView.of(uow.session, batch, now=now())


@router.delete("/{batch_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete(uow: Uow, context: Context, caller: Submitter, batch_id: str) -> None:
    """Delete an ended batch and its stored results; its jobs stay until they are deleted."""
    batches.delete_batch(uow, context, _get(uow.session, caller, batch_id, lock=True))


def _location(batch_id: UUID) -> str:
    return f"/v1/batches/{batch_id}"


def _get(session: Any, caller: Caller, batch_id: str, *, lock: bool = False) -> Batch:  # noqa: ANN401
    key = parse_id(batch_id, "batch")
    return get_owned(session, Batch, key, key_id=caller.key_id, lock=lock)


def _record(context: ApiContext, batch: Batch, once: Once | None) -> BatchView:
    """Add the batch unless it was; blocks. A manifest that no row came to name is deleted."""
    batch_id, key = batch.id, batch.manifest_key
    try:
        with unit_of_work(context.sessions) as uow:

            def make() -> tuple[UUID, BatchView]:
                batches.record_batch(uow, context, batch)
                return batch_id, BatchView.of(uow.session, batch, now=now())

            view = create_once(uow, once, make, status=status.HTTP_202_ACCEPTED, location=_location)
    except DBAPIError:
        raise  # it may have been committed after all; if not, the sweeper finds the manifest
    except BaseException:
        if key is not None:
            context.storage.delete(key)
        raise
    return view


def _manifest_batch(
    caller: Caller,
    batch_id: UUID,
    stored: StoredManifest,
    defaults: dict[str, Any],
    webhook_url: str | None,
) -> Batch:
    return Batch(
        id=batch_id,
        key_id=caller.key_id,
        manifest_key=stored.key,
        num_lines=stored.num_lines,
        defaults=defaults,
        webhook_url=webhook_url,
        created_at=now(),
    )


def _prefix_batch(caller: Caller, body: PrefixBatch) -> Batch:
    return Batch(
        id=new_id(),
        key_id=caller.key_id,
        prefix=body.prefix,
        glob=body.glob,
        defaults=body.options,
        webhook_url=body.webhook_url,
        webhook_secret=body.webhook_secret,
        created_at=now(),
    )


def _parse_prefix(raw: dict[str, Any]) -> PrefixBatch:
    try:
        return PrefixBatch.model_validate(raw)
    except ValidationError as exc:
        first = exc.errors()[0]
        param = str(first["loc"][0]) if first["loc"] else "body"
        raise InvalidOption(f"{param}: {first['msg']}", param=param) from exc


def _parse_index(cursor: str | None) -> int:
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdecimal()):
        raise InvalidOption("cursor: not one that this list gave", param="cursor")
    return int(cursor)


def _ndjson(lines: Iterator[bytes]) -> StreamingResponse:
    return StreamingResponse(lines, media_type=NDJSON)
