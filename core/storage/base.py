"""What the service asks of a place that keeps objects; see `core.storage.open_storage`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

BLOCK_BYTES = 1 << 20
"""Largest block that `Storage.chunks` yields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object in a listing."""

    key: str
    size_bytes: int
    modified_at: datetime


class ObjectWriter(Protocol):
    """An upload in progress; readers see nothing until it is complete."""

    @property
    def num_bytes(self) -> int:
        """How much was written so far."""
        ...

    def write(self, data: bytes) -> None:
        """Append `data`; memory stays bounded whatever the object's size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInfo:
    """One part of a multipart upload that has arrived.

    Attributes:
        tag: What the server wants to be told again when the parts are joined.
    """

    number: int
    size_bytes: int
    tag: str


class DirectUploads(Protocol):
    """Uploads that clients send to the storage themselves, over URLs signed here."""

    def presign_put(self, key: str, *, content_type: str, expires_s: int) -> str:
        """Return a URL that takes the whole object in one PUT with that Content-Type."""
        ...

    def start(self, key: str, *, content_type: str) -> str:
        """Begin an upload in parts; return the token that names it."""
        ...

    def presign_part(self, key: str, token: str, number: int, *, expires_s: int) -> str:
        """Return a URL that takes one part, from 1; sending it again replaces it."""
        ...

    def parts(self, key: str, token: str) -> list[PartInfo]:
        """Return the parts that have arrived, in order; none once joined or aborted."""
        ...

    def complete(self, key: str, token: str, parts: list[PartInfo]) -> None:
        """Join the parts to the object."""
        ...

    def abort(self, key: str, token: str) -> None:
        """Forget the parts; nothing happens when there are none."""
        ...


class Storage(Protocol):
    """Objects by key.

    Keys are relative POSIX paths; see `core.storage.keys` for those that are accepted. A key must
    not be the folder of another. Every method raises `StorageUnavailable` when the place does not
    answer and `InvalidInput` for a key that cannot be; those that read raise `MediaGone` when there
    is no such object (iterators when they are first advanced). Ranges past the end are cut short.
    """

    def writer(self, key: str, *, content_type: str = ...) -> AbstractContextManager[ObjectWriter]:
        """Open an upload: complete at a normal exit, aborted without trace on an exception."""
        ...

    def put(self, key: str, data: bytes, *, content_type: str = ...) -> None:
        """Write a small object at once."""
        ...

    def read(self, key: str, *, start: int = 0, num_bytes: int | None = None) -> bytes:
        """Return a byte range (to the end by default)."""
        ...

    def chunks(self, key: str, *, start: int = 0, num_bytes: int | None = None) -> Iterator[bytes]:
        """Yield a byte range in blocks of at most 1 MiB."""
        ...

    def stat(self, key: str) -> ObjectInfo:
        """Return size and time of one object."""
        ...

    def local_path(self, key: str) -> AbstractContextManager[Path]:
        """Provide the object as a seekable file for as long as the context lasts."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens when there is none."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with `prefix`, in key order."""
        ...

    def presign_get(self, key: str, *, expires_s: int, filename: str | None = None) -> str | None:
        """Return a URL that reads the object without credentials, or None if none can be made."""
        ...

    def direct(self) -> DirectUploads | None:
        """Return how clients upload without this process, or None if they cannot."""
        ...

    def remove_leftovers(self) -> int:
        """Remove what writers left that died half-way; return how much of it there was.

        Nobody ever reads those bytes, but they cost space. Cheap enough to call every few minutes;
        `local_path` files of dead processes count too.
        """
        ...
