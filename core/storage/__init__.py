"""Where objects live: a folder of this machine or a bucket of an S3 server."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from core.storage.base import ObjectInfo, ObjectWriter, Storage
from core.storage.local import LocalStorage

__all__ = ["ObjectInfo", "ObjectWriter", "Storage", "open_storage"]


def open_storage(url: str, *, s3_endpoint_url: str | None = None) -> Storage:
    """Return the storage that `url` names; usable from many threads, not across a fork.

    Nothing is asked of an S3 server yet: a process can start before its storage does.

    Args:
        url: `file:///folder` (made if missing) or `s3://bucket/prefix`. Credentials and region
            come from the usual AWS variables and files.
        s3_endpoint_url: An S3 server other than AWS.

    Raises:
        ValueError: The URL names no storage.
        StorageUnavailable: The folder cannot be made or written.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and len(parts.path) > 1:
        return LocalStorage(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        # botocore takes a quarter of a second to import; who stores files need not wait for it.
        from core.storage.s3 import S3Storage  # noqa: PLC0415

        return S3Storage(
            bucket=parts.netloc, prefix=parts.path.strip("/"), endpoint_url=s3_endpoint_url
        )
    raise ValueError(f"not a storage URL: {url!r}; use file:///folder or s3://bucket/prefix")
