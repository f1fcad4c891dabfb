"""Brings the media of a `media_url` into storage: bounded, guarded, resumed when it breaks off."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx
import structlog
from sqlalchemy import update

from core.db import unit_of_work
from core.errors import MediaEmpty, MediaTooLarge, MediaUnreachable, SourceUnavailable
from core.outbound import (
    MAX_REDIRECTS,
    RETRY_STATUSES,
    Resolver,
    is_page,
    open_client,
    read_retry_after,
    refusing_sources,
)
from core.storage.base import ObjectWriter
from lifecycle.jobs import lock_owned_job
from lifecycle.limits import limits_of
from models import JobStage, Media
from workers.context import WorkerContext
from workers.gunzip import ENCODINGS, Gunzip
from workers.stage import StageClaim

log = structlog.get_logger(__name__)

STALL_S = 30.0
"""A server that sends nothing for so long has gone away."""

MAX_BREAKS = 8
"""Interruptions of one fetch that are resumed before the stage fails and is tried again later."""

MAX_RESTARTS = 3
"""Fetches from the beginning because the source does not resume."""

LONGEST_WAIT_S = 30.0


class Interrupt(Protocol):
    """Raises when the work is no longer wanted."""

    def __call__(self) -> None:
        """See `workers.stage.StageClaim.check`."""
        ...


@dataclass(slots=True)
class Fetched:
    """What has arrived so far.

    Attributes:
        validator: The source's strong ETag or Last-Modified; a resumed answer must match it.
        packed: Unpacks what comes, where the source packs it; then nothing can be resumed.
    """

    num_bytes: int = 0
    validator: str | None = None
    content_type: str | None = None
    packed: Gunzip | None = None
    digest: Any = field(default_factory=hashlib.sha256)


class _Restart(Exception):
    """The source does not resume, or has changed: what was written must go."""


class _Broken(Exception):
    """The connection broke off; the rest can be asked for."""


def fetch_media(claim: StageClaim, media: Media, *, resolver: Resolver | None = None) -> Media:
    """Store what `media.source_url` has, and return the media as it is then.

    Raises:
        MediaUnreachable, MediaTooLarge, MediaEmpty: Trying again cannot help.
        SourceUnavailable: It may.
        LeaseLost, WorkerStopping: The work is no longer this worker's.
    """
    if media.source_url is None:
        return media
    context = claim.context
    with unit_of_work(context.sessions) as uow:
        max_bytes = limits_of(uow.session, context.settings, media.key_id).upload_bytes
    fetcher = Fetcher(
        url=media.source_url,
        headers=dict(media.source_headers or {}),
        max_bytes=max_bytes,
        timeout_s=context.settings.fetch_timeout_s,
        allow_private=context.settings.webhook_allow_private,
        check=claim.check,
        resolver=resolver,
    )
    fetched = fetcher.run(context, media.storage_key)
    # Fenced like every write of a stage; the URL may be signed and the headers are secrets.
    with unit_of_work(context.sessions) as uow:
        lock_owned_job(uow.session, claim.job.id, attempt=claim.job.attempt, stage=JobStage.PREPARE)
        uow.session.execute(
            update(Media)
            .where(Media.id == media.id)
            .values(
                source_url=None,
                source_headers=None,
                size_bytes=fetched.num_bytes,
                sha256=fetched.digest.hexdigest(),
                content_type=fetched.content_type,
            )
            .execution_options(synchronize_session=False)
        )
        stored = uow.session.get_one(Media, media.id, populate_existing=True)
    log.info("media.fetched", size_bytes=fetched.num_bytes)
    return stored


class Fetcher:
    """One fetch of one URL."""

    def __init__(
        self,
        *,
        url: str,
        headers: dict[str, str],
        max_bytes: int,
        timeout_s: float,
        allow_private: bool,
        check: Interrupt,
        resolver: Resolver | None = None,
    ) -> None:
        self._url = url
        self._headers = {"accept-encoding": "identity", "user-agent": "Scriptorium/1"} | headers
        self._max_bytes = max_bytes
        self._deadline = time.monotonic() + timeout_s
        self._check = check
        self._client_options: dict[str, Any] = {
            "allow_private": allow_private,
            "timeout_s": STALL_S,
            "resolver": resolver,
            "max_redirects": MAX_REDIRECTS,
            "sensitive_headers": tuple(headers),
        }

    def run(self, context: WorkerContext, key: str) -> Fetched:
        """Write the object `key`; nothing is left of it when this raises."""
        for _ in range(MAX_RESTARTS):
            try:
                with context.storage.writer(key) as writer:
                    return self._fill(writer, wait=context.stopping.wait)
            except _Restart:
                log.info("fetch.restarted")
        raise SourceUnavailable("The source broke off, and it cannot resume.")

    def _fill(self, writer: ObjectWriter, *, wait: Callable[[float], object]) -> Fetched:
        fetched = Fetched()
        breaks = 0
        with open_client(**self._client_options) as client:
            while True:
                try:
                    self._read(client, writer, fetched)
                except _Broken as exc:
                    if fetched.packed is not None:
                        raise _Restart from exc
                    breaks += 1
                    if breaks > MAX_BREAKS or not fetched.num_bytes:
                        raise SourceUnavailable(
                            "The source does not answer, or broke off."
                        ) from exc
                    log.info("fetch.broken", num_bytes=fetched.num_bytes)
                    wait(min(2.0 ** (breaks - 1) - 1, LONGEST_WAIT_S))
                    self._check()
                else:
                    if not fetched.num_bytes:
                        raise MediaEmpty("The source has no bytes.")
                    return fetched

    def _read(self, client: httpx.Client, writer: ObjectWriter, fetched: Fetched) -> None:
        headers = dict(self._headers)
        if fetched.num_bytes:
            headers["range"] = f"bytes={fetched.num_bytes}-"
            if fetched.validator is not None:
                headers["if-range"] = fetched.validator
        with _translated(), client.stream("GET", self._url, headers=headers) as response:
            self._accept(response, fetched)
            # As they arrive: collecting larger blocks would lose what came before a break.
            for block in response.iter_raw():
                for piece in (block,) if fetched.packed is None else fetched.packed.unpack(block):
                    self._take(piece, writer, fetched)
            if fetched.packed is not None:
                fetched.packed.check_end()

    def _take(self, block: bytes, writer: ObjectWriter, fetched: Fetched) -> None:
        self._check()
        if time.monotonic() > self._deadline:
            raise MediaUnreachable("Fetching took longer than allowed.")
        fetched.num_bytes += len(block)
        if fetched.num_bytes > self._max_bytes:
            raise MediaTooLarge(f"The file exceeds {self._max_bytes} bytes.")
        fetched.digest.update(block)
        writer.write(block)

    def _accept(self, response: httpx.Response, fetched: Fetched) -> None:
        """Look at status and headers before a byte of the body is taken."""
        if fetched.num_bytes:
            if response.status_code in RETRY_STATUSES:
                raise _Broken
            start = f"bytes {fetched.num_bytes}-"
            if response.status_code != 206 or not response.headers.get(
                "content-range", ""
            ).startswith(start):
                self._check()
                raise _Restart
            return
        if response.status_code in RETRY_STATUSES:
            raise SourceUnavailable(
                f"The source answered {response.status_code}.",
                retry_after_s=read_retry_after(response.headers, datetime.now(UTC)),
            )
        if response.status_code != 200:
            raise MediaUnreachable(f"The source answered {response.status_code}.")
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if is_page(content_type):
            raise MediaUnreachable(f"The source answered with {content_type}, which is no media.")
        declared = response.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._max_bytes:
            raise MediaTooLarge(f"The file exceeds {self._max_bytes} bytes.")
        fetched.packed = _unpacker(response.headers)
        fetched.content_type = content_type or None
        fetched.validator = _validator(response.headers)


def _validator(headers: httpx.Headers) -> str | None:
    """Return what makes `If-Range` safe; weak ETags do not (RFC 9110 section 13.1.5)."""
    etag: str = headers.get("etag", "")
    modified: str | None = headers.get("last-modified")
    return etag if etag.startswith('"') else modified


def _unpacker(headers: httpx.Headers) -> Gunzip | None:
    """Return what unpacks an answer that is packed: S3 sends what was stored so, asked or not."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ENCODINGS:
        return Gunzip()
    if encoding not in ("", "identity"):
        raise MediaUnreachable(f"The source answered with Content-Encoding {encoding[:64]}.")
    return None


@contextmanager
def _translated() -> Iterator[None]:
    try:
        with refusing_sources():
            yield
    except httpx.TransportError as exc:
        raise _Broken from exc
