"""Large files: announced first, sent in parts that can be repeated, named by a job afterwards."""

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response, status

from api.context import ApiContext
from api.deps import Context, Reading, Submitter, Uow, now
from api.idempotency import IdempotencyKey, create_once, parse_once
from api.ids import parse_id
from api.upload_schemas import UploadCreation, UploadView
from api.uploads import BLOCK_BYTES, check_room, in_thread, in_threads
from core.db import read_session
from core.errors import InvalidInput, MediaTooLarge, NotFound
from lifecycle.owned import get_owned
from lifecycle.uploads import (
    arrived_parts,
    check_filename,
    check_part,
    discard_upload,
    part_key,
    start_upload,
)
from models.upload import Upload

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])

DEFAULT_TYPE = "application/octet-stream"


@router.post("", status_code=status.HTTP_201_CREATED)
def create_upload(  # noqa: PLR0917 - FastAPI passes them by name
    request: Request,
    response: Response,
    uow: Uow,
    context: Context,
    caller: Submitter,
    creation: UploadCreation,
    idempotency_key: IdempotencyKey = None,
) -> UploadView:
    """Announce a file. PUT its bytes to `url`, or each of `parts`; then name it in a job."""
    at = now()

    def make() -> tuple[UUID, UploadView]:
        upload = start_upload(
            uow,
            context.storage,
            key_id=caller.key_id,
            filename=check_filename(creation.filename),
            content_type=creation.content_type or DEFAULT_TYPE,
            size_bytes=creation.size_bytes,
            max_bytes=caller.limits.upload_bytes,
            now=at,
        )
        base_url = str(request.base_url)
        return upload.id, UploadView.of(upload, context.storage, [], base_url=base_url, now=at)

    view = create_once(
        uow,
        parse_once(request, caller, idempotency_key, creation.model_dump()),
        make,
        status=status.HTTP_201_CREATED,
        location=_location,
    )
    response.headers["Location"] = _location(view.id)
    return view


@router.get("/{upload_id}")
def show_upload(
    request: Request, session: Reading, context: Context, caller: Submitter, upload_id: str
) -> UploadView:
    """Show what has arrived, and where the rest goes."""
    upload = get_owned(session, Upload, parse_id(upload_id, "upload"), key_id=caller.key_id)
    return UploadView.of(
        upload,
        context.storage,
        arrived_parts(context.storage, upload),
        base_url=str(request.base_url),
        now=now(),
    )


@router.delete("/{upload_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_upload(uow: Uow, context: Context, caller: Submitter, upload_id: str) -> None:
    """Forget an upload and what has arrived of it; the media of a job stays."""
    upload = get_owned(uow.session, Upload, parse_id(upload_id, "upload"), key_id=caller.key_id)
    discard_upload(uow, context.storage, upload)


@router.put("/{upload_id}/content", status_code=status.HTTP_204_NO_CONTENT)
async def put_content(
    request: Request, context: Context, upload_id: str, token: Annotated[str, Query()]
) -> None:
    """Take all bytes of a small upload; the URL in `url` is the permission."""
    await _receive(request, context, upload_id, 1, token)


@router.put("/{upload_id}/parts/{number}", status_code=status.HTTP_204_NO_CONTENT)
async def put_part(
    request: Request,
    context: Context,
    upload_id: str,
    number: int,
    token: Annotated[str, Query()],
) -> None:
    """Take one part; the URL in `parts` is the permission."""
    await _receive(request, context, upload_id, number, token)


def _location(upload_id: UUID) -> str:
    return f"/v1/uploads/{upload_id}"


async def _receive(
    request: Request, context: ApiContext, upload_id: str, number: int, token: str
) -> None:
    """Stream the body into the part's object; a body of another length leaves nothing."""
    key = parse_id(upload_id, "upload")
    find = partial(_find_part, context, key, number, token)
    upload = await in_thread(context.upload_threads, find)
    expected = upload.part_size(number)
    opening = context.storage.writer(part_key(key, number))
    async with in_threads(context.upload_threads, opening) as writer:
        num_bytes, block = 0, bytearray()

        def flush(data: bytes) -> None:
            check_room(context.settings)
            writer.write(data)

        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > expected:
                raise MediaTooLarge(f"This part has {expected} bytes.")
            block += chunk
            if len(block) >= BLOCK_BYTES:
                await in_thread(context.upload_threads, partial(flush, bytes(block)))
                block = bytearray()
        if num_bytes != expected:
            raise InvalidInput(f"This part has {expected} bytes; {num_bytes} came.")
        await in_thread(context.upload_threads, partial(flush, bytes(block)))


def _find_part(context: ApiContext, upload_id: UUID, number: int, token: str) -> Upload:
    with read_session(context.sessions) as session:
        upload = session.get(Upload, upload_id)
        if upload is None or context.storage.direct() is not None:
            raise NotFound("There is no such part of an upload.")
        check_part(upload, number, token, now=now())
        return upload
