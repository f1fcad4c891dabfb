"""Uploads that go from the client straight to S3: URLs that were signed here, bytes never seen."""

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from core.storage.base import PartInfo
from core.storage.s3_errors import error_code, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Direct:
    """See `core.storage.base.DirectUploads`; keys are full ones."""

    def __init__(self, client: "S3Client", *, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def presign_put(self, key: str, *, content_type: str, expires_s: int) -> str:
        """See `DirectUploads`."""
        with translated():
            return self._client.generate_presigned_url(
                "put_object",
                Params={
                    "Bucket": self._bucket,
                    "Key": self._prefix + key,
                    "ContentType": content_type,
                },
                ExpiresIn=expires_s,
            )

    def start(self, key: str, *, content_type: str) -> str:
        """See `DirectUploads`."""
        with translated():
            return self._client.create_multipart_upload(
                Bucket=self._bucket, Key=self._prefix + key, ContentType=content_type
            )["UploadId"]

    def presign_part(self, key: str, token: str, number: int, *, expires_s: int) -> str:
        """See `DirectUploads`."""
        with translated():
            return self._client.generate_presigned_url(
                "upload_part",
                Params={
                    "Bucket": self._bucket,
                    "Key": self._prefix + key,
                    "UploadId": token,
                    "PartNumber": number,
                },
                ExpiresIn=expires_s,
            )

    def parts(self, key: str, token: str) -> list[PartInfo]:
        """See `DirectUploads`."""
        with translated():
            pages = self._client.get_paginator("list_parts").paginate(
                Bucket=self._bucket, Key=self._prefix + key, UploadId=token
            )
            try:
                return [
                    PartInfo(number=part["PartNumber"], size_bytes=part["Size"], tag=part["ETag"])
                    for page in pages
                    for part in page.get("Parts", ())
                ]
            except ClientError as exc:
                if error_code(exc) == "NoSuchUpload":  # complete, or aborted
                    return []
                raise

    def complete(self, key: str, token: str, parts: list[PartInfo]) -> None:
        """See `DirectUploads`."""
        with translated():
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._prefix + key,
                UploadId=token,
                MultipartUpload={
                    "Parts": [{"PartNumber": part.number, "ETag": part.tag} for part in parts]
                },
            )

    def abort(self, key: str, token: str) -> None:
        """See `DirectUploads`."""
        with translated():
            try:
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=self._prefix + key, UploadId=token
                )
            except ClientError as exc:
                if error_code(exc) not in {"NoSuchUpload", "404"}:
                    raise
