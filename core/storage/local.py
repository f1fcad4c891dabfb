"""Objects as files under one folder."""

import os
import stat as stat_bits
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from core.errors import MediaGone, StorageUnavailable
from core.storage.base import BLOCK_BYTES, ObjectInfo
from core.storage.keys import check_key, check_prefix
from core.storage.scratch import Scratch

_INCOMING = ".incoming"  # no key begins with a dot
_RENAME_TRIES = 20


class LocalWriter:
    """See `ObjectWriter`."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self.num_bytes = 0

    def write(self, data: bytes) -> None:
        """See `ObjectWriter`."""
        view = memoryview(data)
        with _translated():
            while view:  # the file is unbuffered: a write may be short
                written = self._handle.write(view)
                view = view[written:]
        self.num_bytes += len(data)


class LocalStorage:
    """Each key is a path under `root`; a key must not be the folder of another.

    An object is written under `.incoming`, made durable, and renamed: readers see all of it or
    none. That folder also tells an empty storage from a disk that is not mounted, where nothing
    is gone for good and nothing may be written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = Scratch(root / _INCOMING)
        with _translated():
            self._incoming.prepare()

    @contextmanager
    def writer(
        self,
        key: str,
        *,
        content_type: str = "application/octet-stream",  # noqa: ARG002 - files have none
    ) -> Iterator[LocalWriter]:
        """See `Storage`."""
        path = self._path(key)
        with ExitStack() as stack:
            with _translated():
                handle = stack.enter_context(self._incoming.new_file())
            yield LocalWriter(handle)
            with _translated():
                os.fsync(handle.fileno())
                self._publish(Path(handle.name), path)

    def put(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> None:
        """See `Storage`."""
        with self.writer(key, content_type=content_type) as writer:
            writer.write(data)

    def read(self, key: str, *, start: int = 0, num_bytes: int | None = None) -> bytes:
        """See `Storage`."""
        return b"".join(self.chunks(key, start=start, num_bytes=num_bytes))

    def chunks(self, key: str, *, start: int = 0, num_bytes: int | None = None) -> Iterator[bytes]:
        """See `Storage`."""
        path = self._path(key)
        left = num_bytes
        with ExitStack() as stack:
            with self._reading(key):
                handle = stack.enter_context(path.open("rb"))
                handle.seek(start)
            while left is None or left > 0:
                with self._reading(key):
                    block = handle.read(BLOCK_BYTES if left is None else min(left, BLOCK_BYTES))
                if not block:
                    return
                left = None if left is None else left - len(block)
                yield block

    def stat(self, key: str) -> ObjectInfo:
        """See `Storage`."""
        path = self._path(key)
        with self._reading(key):
            found = path.stat()
            if not stat_bits.S_ISREG(found.st_mode):
                raise IsADirectoryError(str(path))
        return _info(key, found)

    @contextmanager
    def local_path(self, key: str) -> Iterator[Path]:
        """See `Storage`; the file is the object itself: do not write to it."""
        self.stat(key)
        yield self._path(key)

    def delete(self, key: str) -> None:
        """See `Storage`; folders that become empty go too."""
        path = self._path(key)
        with _translated(), suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            path.unlink()
        with suppress(OSError):  # the first folder that still holds something ends it
            for folder in path.relative_to(self._root).parents[:-1]:
                (self._root / folder).rmdir()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `Storage`."""
        folder, _, name = check_prefix(prefix).rpartition("/")
        if not self._is_mounted():
            raise StorageUnavailable(f"{self._root} is not there.")
        return self._walk(f"{folder}/" if folder else "", name)

    def presign_get(
        self,
        key: str,
        *,
        expires_s: int,  # noqa: ARG002
        filename: str | None = None,  # noqa: ARG002
    ) -> str | None:
        """Return None: a folder has no URLs of its own."""
        check_key(key)
        return None

    def direct(self) -> None:
        """See `Storage`: a folder takes nothing from strangers."""

    def remove_leftovers(self) -> int:
        """See `Storage`."""
        with _translated():
            return self._incoming.remove_leftovers()

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _is_mounted(self) -> bool:
        return self._incoming.folder.is_dir()

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Call an object gone only if the storage itself is there."""
        with _translated():
            try:
                yield
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as exc:
                if not self._is_mounted():
                    raise
                raise MediaGone(f"There is no object {key}.") from exc

    def _publish(self, source: Path, target: Path) -> None:
        """Rename durably, although a `delete` beside us may be removing an empty folder."""
        for tries_left in reversed(range(_RENAME_TRIES)):
            try:
                self._make_folder(target.parent)
                source.replace(target)
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
        with suppress(FileNotFoundError):  # the object was deleted again, and its folder with it
            _sync_folder(target.parent)

    def _make_folder(self, folder: Path) -> None:
        if folder == self._root or folder.is_dir():
            return
        self._make_folder(folder.parent)
        # Not mkdir(exist_ok=True): that looks at the folder once more and fails if a `delete`
        # beside us took it meanwhile. Where a file is in the way, the rename says so.
        with suppress(FileExistsError):
            folder.mkdir()
        _sync_folder(folder.parent)

    def _walk(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield what lies under `folder` ("" or with its slash) and begins with `name`."""
        with _translated():
            found: list[tuple[str, os.stat_result | None]] = []
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                os.scandir(self._root / folder) as entries,
            ):
                for entry in entries:
                    if entry.name.startswith(".") or not entry.name.startswith(name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        found.append((f"{entry.name}/", None))
                    else:
                        with suppress(FileNotFoundError):  # deleted meanwhile
                            found.append((entry.name, entry.stat()))
        # With its slash a folder sorts where its objects' keys do: "a.b" < "a/c" < "a0".
        for child, status in sorted(found):
            if status is None:
                yield from self._walk(folder + child, "")
            else:
                yield _info(folder + child, status)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        key=key,
        size_bytes=status.st_size,
        modified_at=datetime.fromtimestamp(status.st_mtime, tz=UTC),
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StorageUnavailable(f"The storage folder cannot be used: {exc}") from exc
