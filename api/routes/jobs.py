"""Jobs: create, look, list, cancel, retry, delete."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, status
from sqlalchemy import select, tuple_
from sqlalchemy.orm import joinedload

from api.cursors import as_utc, decode_cursor, encode_cursor, parse_id
from api.deps import Context, JobId, Reader, Reading, Submitter, Uow, now
from api.idempotency import IdempotencyKey, check_key, parse_once
from api.openapi import job_body
from api.schemas import JobList
from api.submissions import accept_source, accept_upload, read_json_object
from api.uploads import Fields, in_thread, read_body, receive_form
from lifecycle.jobs import cancel_job, get_job, purge_job, retry_job
from lifecycle.submissions import (
    Submission,
    check_text,
    parse_fields,
    parse_submission,
    take_source,
)
from lifecycle.views import JobView
from models import Job, JobStatus

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

MAX_JSON_BYTES = 1 << 20


@router.post(
    "",
    status_code=status.HTTP_202_ACCEPTED,
    openapi_extra={"requestBody": job_body()},
)
async def create_job(
    request: Request,
    response: Response,
    context: Context,
    caller: Submitter,
    idempotency_key: IdempotencyKey = None,
) -> JobView:
    """Accept a recording: a form with a `file`, or JSON that says where it is."""
    check_key(idempotency_key)
    key_id = caller.key_id
    once_for = partial(parse_once, request, caller, idempotency_key)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/json":
        raw = read_json_object(await read_body(request, max_bytes=MAX_JSON_BYTES))
        once = once_for(raw)
        source = take_source(context.settings, raw)
        submission = parse_submission(context.settings, raw)
        accept = partial(accept_source, context, key_id, source, submission, once=once, now=now())
    else:

        def parse(fields: Fields) -> Submission:
            return parse_submission(context.settings, parse_fields(fields))

        fields, upload = await receive_form(request, context, check=parse)
        once = once_for({"fields": sorted(fields), "sha256": upload.sha256})
        submission = parse(fields)
        accept = partial(accept_upload, context, key_id, upload, submission, once=once, now=now())
    view = await in_thread(context.upload_threads, accept)
    response.headers["Location"] = f"/v1/jobs/{view.id}"
    return view


@router.get("")
def list_jobs(
    session: Reading,
    caller: Reader,
    *,
    status: JobStatus | None = None,
    batch_id: Annotated[str | None, Query(max_length=64)] = None,
    reference: Annotated[str | None, Query(max_length=500)] = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> JobList:
    """List the caller's jobs, newest first.

    Pages follow the order of creation, so that jobs which arrive or go meanwhile neither repeat
    nor hide others.
    """
    wanted = _filters(
        status=status,
        batch_id=batch_id,
        reference=reference,
        created_after=created_after,
        created_before=created_before,
    )
    statement = (
        select(Job)
        .where(Job.key_id == caller.key_id, *wanted)
        .options(joinedload(Job.media))
        .order_by(Job.created_at.desc(), Job.id.desc())
        .limit(limit + 1)
    )
    if cursor is not None:
        statement = statement.where(tuple_(Job.created_at, Job.id) < decode_cursor(cursor))
    rows = session.scalars(statement).all()
    page = rows[:limit]
    has_more = len(rows) > limit
    return JobList(
        data=[JobView.of(job) for job in page],
        next_cursor=encode_cursor(page[-1].created_at, page[-1].id) if has_more else None,
    )


@router.get("/{job_id}")
def show_job(session: Reading, caller: Reader, job_id: JobId) -> JobView:
    """Show one job."""
    return JobView.of(get_job(session, caller.key_id, job_id))


@router.post("/{job_id}/cancel")
def cancel(uow: Uow, context: Context, caller: Submitter, job_id: JobId) -> JobView:
    """Cancel a job that has not ended."""
    job = get_job(uow.session, caller.key_id, job_id)
    cancel_job(uow, context.publisher, job, now=now())
    return JobView.of(get_job(uow.session, caller.key_id, job_id))


@router.post("/{job_id}/retry")
def retry(uow: Uow, context: Context, caller: Submitter, job_id: JobId) -> JobView:
    """Queue a failed or cancelled job again; what was recognised already is kept."""
    job = get_job(uow.session, caller.key_id, job_id)
    retry_job(uow, context.queue, context.publisher, job, now=now())
    return JobView.of(get_job(uow.session, caller.key_id, job_id))


@router.delete("/{job_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete(uow: Uow, context: Context, caller: Submitter, job_id: JobId) -> None:
    """Delete a job with its transcript, events and media, whatever its status."""
    purge_job(uow, context.storage, get_job(uow.session, caller.key_id, job_id))


def _filters(
    *,
    status: JobStatus | None,
    batch_id: str | None,
    reference: str | None,
    created_after: datetime | None,
    created_before: datetime | None,
) -> list[Any]:
    wanted: list[Any] = []
    if status is not None:
        wanted.append(Job.status == status)
    if batch_id is not None:
        wanted.append(Job.batch_id == parse_id(batch_id, param="batch_id"))
    if reference is not None:
        check_text(reference, param="reference")
        wanted.append(Job.reference == reference)
    if created_after is not None:
        wanted.append(Job.created_at > as_utc(created_after, param="created_after"))
    if created_before is not None:
        wanted.append(Job.created_at < as_utc(created_before, param="created_before"))
    return wanted
