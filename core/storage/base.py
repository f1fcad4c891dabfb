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

    def remove_leftovers(self) -> int:
        """Remove what writers left that died half-way; return how much of it there was.

        Nobody ever reads those bytes, but they cost space. Cheap enough to call every few minutes;
        `local_path` files of dead processes count too.
        """
        ...
