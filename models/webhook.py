from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import new_id
from models.base import Base, Sealed


class WebhookEndpoint(Base):
    """A URL that hears of every job and batch of its key.

    Attributes:
        events: Event types it wants; `["*"]` for all.
        secret: `whsec_…`. Shown once, never logged.
        previous_secret: Signs beside `secret` until `previous_secret_expires_at`, so that a
            receiver can change over without refusing a single event.
        failures: Attempts in a row that failed; 0 after any success.
        failing_since: When the present row of failures began.
        paused_until: No attempt is made before; set when too many failed in a row.
        disabled_reason: "gone" (it answered 410), "unreachable" (failed for days), "by_owner".
    """

    __tablename__ = "webhook_endpoints"
    __table_args__ = (
        CheckConstraint(
            "(disabled_at IS NULL) = (disabled_reason IS NULL)", name="disabled_has_reason"
        ),
        CheckConstraint(
            "(previous_secret IS NULL) = (previous_secret_expires_at IS NULL)",
            name="previous_secret_expires",
        ),
        CheckConstraint("(failures = 0) = (failing_since IS NULL)", name="failures_have_a_start"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id"), index=True)
    url: Mapped[str] = mapped_column(Text)
    description: Mapped[str | None] = mapped_column(Text)
    events: Mapped[list[Any]] = mapped_column(default=lambda: ["*"])
    secret: Mapped[str] = mapped_column(Sealed)
    previous_secret: Mapped[str | None] = mapped_column(Sealed)
    previous_secret_expires_at: Mapped[datetime | None]
    failures: Mapped[int] = mapped_column(default=0)
    failing_since: Mapped[datetime | None]
    paused_until: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime]

    def wants(self, event_type: str) -> bool:
        """Whether events of that type go here."""
        return self.disabled_at is None and ("*" in self.events or event_type in self.events)

    def is_open(self, now: datetime) -> bool:
        """Whether an attempt may be made now."""
        return self.disabled_at is None and (self.paused_until is None or self.paused_until <= now)
