"""Uploads as callers see them."""

from datetime import datetime
from typing import Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from core.storage.base import PartInfo, Storage
from lifecycle.uploads import object_key
from models.upload import Upload


class UploadCreation(BaseModel):
    """A file that is about to come."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"filename": "meeting.m4a", "size_bytes": 48_000_000}]},
    )

    filename: str = Field(min_length=1, max_length=1000)
    size_bytes: int = Field(ge=0, le=2**53, strict=True)
    content_type: str | None = Field(
        default=None, max_length=200, pattern=r"^[\w.+-]+/[\w.+-]+(; ?[\w.+=\"-]+)*$"
    )


class PartView(BaseModel):
    """Where one part goes; sending it again replaces it."""

    number: int
    url: str
    size_bytes: int
    received: bool = False


class UploadView(BaseModel):
    """An upload and where its bytes go: one `url`, or `parts`."""

    id: UUID
    method: Literal["PUT"] = "PUT"
    url: str | None
    headers: dict[str, str] = Field(description="Send these with every PUT.")
    parts: list[PartView] | None
    size_bytes: int
    received_bytes: int = Field(description="What has arrived completely; resume with the rest.")
    expires_at: datetime

    @classmethod
    def of(
        cls,
        upload: Upload,
        storage: Storage,
        received: list[PartInfo],
        *,
        base_url: str,
        now: datetime,
    ) -> Self:
        """Return the view with URLs that are good until the upload expires."""
        urls = _Urls(upload, storage, base_url=base_url, now=now)
        arrived = {part.number for part in received}
        parts = None
        if upload.part_bytes is not None:
            parts = [
                PartView(
                    number=number,
                    url=urls.part(number),
                    size_bytes=upload.part_size(number),
                    received=number in arrived,
                )
                for number in range(1, upload.num_parts + 1)
            ]
        return cls(
            id=upload.id,
            url=urls.whole() if parts is None else None,
            headers={"Content-Type": upload.content_type} if parts is None else {},
            parts=parts,
            size_bytes=upload.size_bytes,
            received_bytes=sum(part.size_bytes for part in received),
            expires_at=upload.expires_at,
        )


class _Urls:
    def __init__(self, upload: Upload, storage: Storage, *, base_url: str, now: datetime) -> None:
        self._upload = upload
        self._direct = storage.direct()
        self._base = f"{base_url.rstrip('/')}/v1/uploads/{upload.id}"
        self._expires_s = max(1, int((upload.expires_at - now).total_seconds()))

    def whole(self) -> str:
        if self._direct is None:
            return f"{self._base}/content?token={self._upload.token}"
        return self._direct.presign_put(
            object_key(self._upload.id),
            content_type=self._upload.content_type,
            expires_s=self._expires_s,
        )

    def part(self, number: int) -> str:
        if self._direct is None or self._upload.direct_token is None:
            return f"{self._base}/parts/{number}?token={self._upload.token}"
        return self._direct.presign_part(
            object_key(self._upload.id),
            self._upload.direct_token,
            number,
            expires_s=self._expires_s,
        )
