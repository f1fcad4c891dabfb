"""From a request's body straight into storage: hashed on the way, never whole anywhere."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit
from uuid import UUID

import anyio
from anyio import CapacityLimiter
from fastapi import Request

from api.context import ApiContext
from api.multipart import FILE_FIELD, FileStart, read_parts
from api.multipart import Field as FormField
from core.disk import check_free
from core.errors import InvalidInput, InvalidOption, MediaEmpty, MediaTooLarge
from core.ids import new_id
from core.settings import Settings
from core.storage.base import ObjectWriter
from lifecycle.media import media_key

T = TypeVar("T")

BLOCK_BYTES = 1 << 20
"""Writes to storage have about this size: fewer trips to a thread, bounded memory."""

FORM_OVERHEAD_BYTES = 2 << 20
"""How much longer than its file a form may declare itself before anything is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A complete object in storage that no row knows yet; whoever holds this must settle that."""

    media_id: UUID
    key: str
    filename: str
    content_type: str | None
    size_bytes: int
    sha256: str


Fields = list[tuple[str, str]]
CheckFields = Callable[[Fields], object]


async def receive_form(
    request: Request, context: ApiContext, *, check: CheckFields
) -> tuple[Fields, Upload]:
    """Read the form; its file is in storage when this returns, and nothing is when it raises.

    Args:
        check: Called with the fields that precede the file, so that a bad one is refused before
            the bytes are taken, and with all of them at the end. Raises `InvalidInput`.

    Raises:
        InvalidInput: The form is malformed, or `check` says so.
        MediaEmpty, MediaTooLarge: The file is.
        StorageUnavailable: Storage does not answer or the disk is nearly full.
        ClientDisconnect: The caller left.
    """
    _check_declared_length(request, context.settings)
    fields: Fields = []
    sink: _Sink | None = None
    async with AsyncExitStack() as stack:
        async for part in read_parts(request.headers.get("content-type", ""), request.stream()):
            if isinstance(part, FormField):
                fields.append((part.name, part.value))
            elif isinstance(part, FileStart):
                if part.name != FILE_FIELD or sink is not None:
                    raise InvalidOption(
                        f"{part.name}: send one file, in the field {FILE_FIELD!r}", param=part.name
                    )
                check(fields)
                sink = await stack.enter_async_context(_open_sink(context, part))
            elif sink is not None:
                await sink.write(part.data)
        check(fields)
        if sink is None:
            raise InvalidOption(f"{FILE_FIELD}: the form has no file", param=FILE_FIELD)
        upload = await sink.finish()
    return fields, upload


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Return a small body.

    Raises:
        InvalidInput: It is larger than that.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise InvalidInput(f"The body exceeds {max_bytes} bytes.")
    return bytes(body)


class _Sink:
    """Collects blocks and writes them in a thread."""

    def __init__(
        self, context: ApiContext, writer: ObjectWriter, start: FileStart, media_id: UUID
    ) -> None:
        self._context = context
        self._writer = writer
        self._start = start
        self._digest = hashlib.sha256()
        self._block = bytearray()
        self._num_bytes = 0
        self._media_id = media_id

    async def write(self, data: bytes) -> None:
        self._num_bytes += len(data)
        limit = self._context.settings.max_upload_bytes
        if self._num_bytes > limit:
            raise MediaTooLarge(f"The file exceeds {limit} bytes.")
        self._block += data
        if len(self._block) >= BLOCK_BYTES:
            await self._flush()

    async def finish(self) -> Upload:
        if not self._num_bytes:
            raise MediaEmpty("The file has no bytes.")
        await self._flush()
        return Upload(
            media_id=self._media_id,
            key=media_key(self._media_id),
            filename=self._start.filename,
            content_type=self._start.content_type,
            size_bytes=self._num_bytes,
            sha256=self._digest.hexdigest(),
        )

    async def _flush(self) -> None:
        block, self._block = bytes(self._block), bytearray()
        await in_thread(self._context.upload_threads, partial(self._write_block, block))

    def _write_block(self, block: bytes) -> None:
        check_room(self._context.settings)
        self._digest.update(block)
        self._writer.write(block)


async def in_thread(limiter: CapacityLimiter, function: Callable[[], T]) -> T:
    """Run a blocking call off the event loop; a cancelled caller still waits for its end."""
    return await anyio.to_thread.run_sync(function, limiter=limiter)


@asynccontextmanager
async def _open_sink(context: ApiContext, start: FileStart) -> AsyncIterator[_Sink]:
    media_id = new_id()
    content_type = start.content_type or "application/octet-stream"
    check_room(context.settings)
    opening = context.storage.writer(media_key(media_id), content_type=content_type)
    async with in_threads(context.upload_threads, opening) as writer:
        yield _Sink(context, writer, start, media_id)


@asynccontextmanager
async def in_threads(
    limiter: CapacityLimiter, manager: AbstractContextManager[T]
) -> AsyncIterator[T]:
    """Enter and leave a blocking context manager in threads.

    Unlike FastAPI's, it also tells the manager of a cancellation, and the clean-up cannot be
    cancelled: an upload of a caller who left must be aborted, not forgotten.
    """
    value = await in_thread(limiter, manager.__enter__)
    try:
        yield value
    except BaseException as exc:
        with anyio.CancelScope(shield=True):
            leave = partial(manager.__exit__, type(exc), exc, exc.__traceback__)
            if not await in_thread(limiter, leave):
                raise
    else:
        await in_thread(limiter, partial(manager.__exit__, None, None, None))


def _check_declared_length(request: Request, settings: Settings) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > settings.max_upload_bytes + FORM_OVERHEAD_BYTES:
        raise MediaTooLarge(f"The file exceeds {settings.max_upload_bytes} bytes.")


def check_room(settings: Settings) -> None:
    """Raise `StorageUnavailable` if the local disk is nearly full."""
    parts = urlsplit(settings.storage)
    if parts.scheme == "file":
        check_free(Path(unquote(parts.path)), settings.min_free_bytes)
