"""A streaming upload to S3 with bounded memory."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

import structlog

from core.errors import StorageUnavailable
from core.storage.s3_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

log = structlog.get_logger(__name__)

PART_BYTES = 8 << 20
"""S3 wants at least 5 MiB a part and at most 10,000 parts: objects of up to 78 GiB."""


class S3Writer:
    """Collects one part while the one before travels: at most two parts are in memory.

    What fits into one part is a single PUT. As a context manager it completes the upload at a
    normal exit and aborts it otherwise; S3 shows nothing before that.
    """

    def __init__(self, client: "S3Client", *, bucket: str, key: str, content_type: str) -> None:
        self._client = client
        self._bucket = bucket
        self._key = key
        self._content_type = content_type
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._parts: list[CompletedPartTypeDef] = []
        self._sending: Future[None] | None = None
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="s3-upload")
        self.num_bytes = 0

    def write(self, data: bytes) -> None:
        """See `ObjectWriter`; blocks while the server is slower than the caller."""
        view = memoryview(data)
        while view:
            room = PART_BYTES - len(self._buffer)
            if not room:
                self._send_part()
                continue
            self._buffer += view[:room]
            view = view[room:]
        self.num_bytes += len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None:
                self._complete()
        except BaseException:
            self._abort()
            raise
        else:
            if exc_type is not None:
                self._abort()
        finally:
            self._sender.shutdown()

    def _complete(self) -> None:
        if self._upload_id is None:
            with translated():
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=self._key,
                    Body=bytes(self._buffer),
                    ContentType=self._content_type,
                )
            return
        self._send_part()
        self._await_part()
        with translated():
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload_id,
                MultipartUpload={"Parts": self._parts},
            )

    def _send_part(self) -> None:
        self._await_part()
        if self._upload_id is None:
            with translated():
                self._upload_id = self._client.create_multipart_upload(
                    Bucket=self._bucket, Key=self._key, ContentType=self._content_type
                )["UploadId"]
        part, self._buffer = self._buffer, bytearray()
        self._sending = self._sender.submit(
            self._upload_part, self._upload_id, len(self._parts) + 1, part
        )

    def _await_part(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _upload_part(self, upload_id: str, number: int, part: bytearray) -> None:
        with translated():
            answer = self._client.upload_part(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=upload_id,
                PartNumber=number,
                Body=part,  # type: ignore[arg-type]  # botocore takes a bytearray
            )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    def _abort(self) -> None:
        """Drop the parts; if that fails, `S3Storage.remove_leftovers` will find them."""
        self._sender.shutdown()  # a part that arrives after the abort would stay for ever
        if self._upload_id is None:
            return
        try:
            with translated():
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=self._key, UploadId=self._upload_id
                )
        except StorageUnavailable as exc:
            log.warning("upload.not_aborted", key=self._key, error=str(exc))
