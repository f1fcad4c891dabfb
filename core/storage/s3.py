"""Objects in a bucket of AWS S3 or of a server that speaks its protocol."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from core.errors import MediaGone, StorageUnavailable
from core.storage.base import BLOCK_BYTES, ObjectInfo
from core.storage.keys import check_key, check_prefix
from core.storage.s3_direct import S3Direct
from core.storage.s3_errors import error_code, translated
from core.storage.s3_writer import S3Writer
from core.storage.scratch import Scratch

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_DOWNLOAD = TransferConfig(multipart_threshold=16 << 20, multipart_chunksize=8 << 20)
"""Downloads above 16 MiB use ten ranged requests at a time (s3transfer's default)."""

_MIN_FREE_BYTES = 256 << 20
_READ_TIMEOUT_S = 20
_STALE_UPLOAD = timedelta(hours=24)
"""No upload of one object takes longer; presigned ones expire before."""


class S3Storage:
    """Keys live under `prefix` in one bucket, which must exist.

    Open it after a fork: two processes must not share its connections.
    """

    def __init__(self, *, bucket: str, prefix: str, endpoint_url: str | None) -> None:
        self._bucket = bucket
        self._prefix = f"{check_key(prefix)}/" if prefix else ""
        self._client = _make_client(endpoint_url)
        self._downloads = Scratch(Path(tempfile.gettempdir()) / f"scriptorium-{os.geteuid()}")

    def writer(self, key: str, *, content_type: str = "application/octet-stream") -> S3Writer:
        """See `Storage`."""
        return S3Writer(
            self._client, bucket=self._bucket, key=self._full(key), content_type=content_type
        )

    def put(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> None:
        """See `Storage`."""
        with self.writer(key, content_type=content_type) as writer:
            writer.write(data)

    def read(self, key: str, *, start: int = 0, num_bytes: int | None = None) -> bytes:
        """See `Storage`."""
        return b"".join(self.chunks(key, start=start, num_bytes=num_bytes))

    def chunks(self, key: str, *, start: int = 0, num_bytes: int | None = None) -> Iterator[bytes]:
        """See `Storage`."""
        request: dict[str, Any] = {"Bucket": self._bucket, "Key": self._full(key)}
        if num_bytes is not None and num_bytes <= 0:
            self.stat(key)
            return
        if start or num_bytes is not None:
            last = "" if num_bytes is None else start + num_bytes - 1
            request["Range"] = f"bytes={start}-{last}"
        with translated(key):
            try:
                body = self._client.get_object(**request)["Body"]
            except ClientError as exc:
                if error_code(exc) == "InvalidRange":  # starts at or past the end
                    return
                raise
        with body:
            while True:
                with translated(key):
                    block = body.read(BLOCK_BYTES)
                if not block:
                    return
                yield block

    def stat(self, key: str) -> ObjectInfo:
        """See `Storage`."""
        try:
            with translated(key):
                found = self._client.head_object(Bucket=self._bucket, Key=self._full(key))
        except MediaGone:
            with translated():  # a HEAD does not say whether it was the bucket that is missing
                self._client.head_bucket(Bucket=self._bucket)
            raise
        return ObjectInfo(
            key=key, size_bytes=found["ContentLength"], modified_at=found["LastModified"]
        )

    @contextmanager
    def local_path(self, key: str) -> Iterator[Path]:
        """See `Storage`; a download that lasts as long as the context.

        Raises:
            StorageUnavailable: Also when the disk for temporary files has too little room.
        """
        size_bytes = self.stat(key).size_bytes
        with ExitStack() as stack:
            with translated(key):
                self._downloads.prepare()
                self._check_downloads(size_bytes)
                handle = stack.enter_context(self._downloads.new_file(suffix=Path(key).suffix))
                self._client.download_fileobj(
                    self._bucket, self._full(key), handle, Config=_DOWNLOAD
                )
            yield Path(handle.name)

    def delete(self, key: str) -> None:
        """See `Storage`."""
        with translated():
            try:
                self._client.delete_object(Bucket=self._bucket, Key=self._full(key))
            except ClientError as exc:  # AWS answers 204 for a missing key, others 404
                if error_code(exc) not in {"NoSuchKey", "404"}:
                    raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `Storage`; a thousand objects a request."""
        full = self._prefix + check_prefix(prefix)
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": full}
        while True:
            with translated():
                page = self._client.list_objects_v2(**request)
            for item in page.get("Contents", ()):
                yield ObjectInfo(
                    key=item["Key"].removeprefix(self._prefix),
                    size_bytes=item["Size"],
                    modified_at=item["LastModified"],
                )
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def presign_get(self, key: str, *, expires_s: int, filename: str | None = None) -> str | None:
        """See `Storage`; `filename` is what a browser saves the object as, in any script."""
        params = {"Bucket": self._bucket, "Key": self._full(key)}
        if filename is not None:
            # RFC 6266 section 4.3; RFC 8187 for the encoding.
            params["ResponseContentDisposition"] = (
                f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
            )
        with translated():
            return self._client.generate_presigned_url(
                "get_object", Params=params, ExpiresIn=expires_s
            )

    def direct(self) -> S3Direct:
        """See `Storage`."""
        return S3Direct(self._client, bucket=self._bucket, prefix=self._prefix)

    def remove_leftovers(self) -> int:
        """See `Storage`; uploads begun more than a day ago, and downloads of dead processes."""
        oldest = datetime.now(UTC) - _STALE_UPLOAD
        with translated():
            self._downloads.prepare()
            removed = 0
            for page in self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            ):
                for upload in page.get("Uploads", ()):
                    if upload["Initiated"] < oldest:
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
                        removed += 1
        return removed

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _check_downloads(self, size_bytes: int) -> None:
        if self._downloads.folder.stat().st_uid != os.geteuid():  # anyone may write into /tmp
            raise StorageUnavailable(f"{self._downloads.folder} belongs to someone else.")
        free = shutil.disk_usage(self._downloads.folder).free
        if free < size_bytes + _MIN_FREE_BYTES:
            raise StorageUnavailable(
                f"{size_bytes} bytes to fetch, {free} free in {self._downloads.folder}."
            )


def _make_client(endpoint_url: str | None) -> "S3Client":
    """Return a client that gives up within seconds and may be used from many threads.

    Servers other than AWS get path-style addresses (they seldom have wildcard DNS) and no CRC
    trailers, which many refuse since botocore 1.36 sends them by default.
    """
    is_aws = endpoint_url is None
    config = Config(
        signature_version="s3v4",
        connect_timeout=3,
        read_timeout=_READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": 3},
        max_pool_connections=32,
        tcp_keepalive=True,
        s3={"addressing_style": "auto" if is_aws else "path"},
        request_checksum_calculation="when_supported" if is_aws else "when_required",
        response_checksum_validation="when_supported" if is_aws else "when_required",
    )
    # A session of its own: boto3's default one must not be used from several threads at once.
    return boto3.session.Session().client("s3", endpoint_url=endpoint_url, config=config)
