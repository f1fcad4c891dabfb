from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import new_id
from models.base import Base, Sealed

LOCAL_KEY_ID = UUID("00000000-0000-7000-8000-000000000001")
"""Owner of everything made without a key, under `up --no-auth`.
The row exists from the first migration on; its hash matches no key."""


class ApiKey(Base):
    """Who may call, and who owns what was made. Only a SHA-256 of the key is kept.

    Attributes:
        prefix: First characters of the key, to recognise it in lists.
        key_hash: Hex SHA-256 of the whole key; a key has 256 random bits, so no salt is needed.
        scopes: Of "submit", "read", "admin".
        limits: Overrides of the deployment's limits, by name.
        webhook_secret: `whsec_…` that signs webhooks of jobs without a secret of their own.
    """

    __tablename__ = "api_keys"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(200))
    prefix: Mapped[str] = mapped_column(String(16))
    key_hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Any]] = mapped_column(default=lambda: ["submit", "read"])
    limits: Mapped[dict[str, Any]] = mapped_column(default=dict)
    webhook_secret: Mapped[str | None] = mapped_column(Sealed)
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
