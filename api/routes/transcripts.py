"""What a job has produced, and what it was made from."""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.deps import Context, JobId, Reader, Reading
from api.ranges import parse_range
from core.errors import MediaGone, MediaNotFound
from core.formats import FORMATS, get_format
from core.formats.cues import CueStyle
from core.formats.srt import render_srt
from core.formats.vtt import render_vtt
from core.storage.base import Storage
from lifecycle.jobs import get_job
from lifecycle.transcripts import load_transcript

router = APIRouter(prefix="/v1/jobs", tags=["transcripts"])

_STYLED = {"srt": render_srt, "vtt": render_vtt}


@router.get(
    "/{job_id}/transcript",
    response_class=Response,
    responses={
        200: {
            "description": "The transcript in the format asked for.",
            "content": {
                known.media_type.partition(";")[0]: {"schema": {"type": "string"}}
                for known in FORMATS.values()
                if known.extension != ".json"
            }
            | {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
def show_transcript(
    session: Reading,
    caller: Reader,
    job_id: JobId,
    format_name: Annotated[str, Query(alias="format", description=", ".join(FORMATS))] = "json",
    *,
    download: bool = False,
    max_line_chars: Annotated[int, Query(ge=10, le=200)] = 42,
    max_lines: Annotated[int, Query(ge=1, le=5)] = 2,
) -> Response:
    """Write a completed job's transcript; `max_…` shape subtitles, `download` names the file."""
    chosen = get_format(format_name)
    job = get_job(session, caller.key_id, job_id)
    transcript = load_transcript(session, job)
    if chosen.name in _STYLED:
        style = CueStyle(max_line_chars=max_line_chars, max_lines=max_lines)
        text = _STYLED[chosen.name](transcript, style)
    else:
        text = chosen.render(transcript)
    headers = {}
    if download:
        stem = (job.media.filename or str(job.id)).rsplit(".", 1)[0] or str(job.id)
        headers["Content-Disposition"] = attachment(stem + chosen.extension)
    return Response(text.encode(), headers={**headers, "Content-Type": chosen.media_type})


@router.get(
    "/{job_id}/media",
    response_class=Response,
    responses={
        200: {"description": "The media.", "content": {"application/octet-stream": {}}},
        206: {"description": "A range of it.", "content": {"application/octet-stream": {}}},
        416: {"description": "The range lies outside.", "content": {}},
    },
)
def read_media(
    request: Request, session: Reading, context: Context, caller: Reader, job_id: JobId
) -> Response:
    """Return the recording as it was sent, or one byte range of it."""
    media = get_job(session, caller.key_id, job_id).media
    try:
        size = context.storage.stat(media.storage_key).size_bytes
    except MediaGone as exc:
        raise MediaNotFound("The media of this job is not there (any more).") from exc
    # Whatever the caller said it was: a browser must not run it as a page of ours.
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
        "Content-Disposition": attachment(media.filename or str(media.id)),
        "X-Content-Type-Options": "nosniff",
    }
    wanted = parse_range(request.headers.get("range"), size)
    if wanted is None:
        headers["Content-Length"] = str(size)
        return StreamingResponse(_chunks(context.storage, media.storage_key), headers=headers)
    start, end = wanted
    if start >= end:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - start)
    body = _chunks(context.storage, media.storage_key, start=start, num_bytes=end - start)
    return StreamingResponse(body, status_code=206, headers=headers)


def attachment(filename: str) -> str:
    """Return a Content-Disposition that carries any name safely (RFC 6266, RFC 5987)."""
    plain = "".join(
        c if c.isascii() and c.isprintable() and c not in '"\\%' else "_" for c in filename
    )
    encoded = quote(filename, safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"


def _chunks(
    storage: Storage, key: str, *, start: int = 0, num_bytes: int | None = None
) -> Iterator[bytes]:
    yield from storage.chunks(key, start=start, num_bytes=num_bytes)
