"""API keys as an administrator sees and makes them."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from core.keys import Scope
from models import ApiKey


class KeyCreation(BaseModel):
    """A new key."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "archive", "scopes": ["submit", "read"], "limits": {}}]
        },
    )

    name: str = Field(min_length=1, max_length=200)
    scopes: list[Scope] = Field(
        default_factory=lambda: [Scope.SUBMIT, Scope.READ], min_length=1, max_length=3
    )
    limits: dict[str, Any] = Field(
        default_factory=dict,
        description="requests_per_min, active_jobs, queued_audio_s, upload_bytes, priority.",
    )


class KeyChange(BaseModel):
    """New limits of a key; they replace the old ones."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"limits": {"active_jobs": 10}}]}
    )

    limits: dict[str, Any]


class KeyView(BaseModel):
    """A key, without its secret."""

    id: UUID
    name: str
    prefix: str
    scopes: list[str]
    limits: dict[str, Any]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, row: ApiKey) -> Self:
        """Return the view."""
        return cls(
            id=row.id,
            name=row.name,
            prefix=row.prefix,
            scopes=row.scopes,
            limits=row.limits,
            created_at=row.created_at,
            last_used_at=row.last_used_at,
            revoked_at=row.revoked_at,
        )


class CreatedKey(KeyView):
    """A new key with its secret, shown this once."""

    key: str


class KeyList(BaseModel):
    """All keys, oldest first, revoked ones included."""

    data: list[KeyView]
