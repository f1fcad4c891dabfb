from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from core.errors import InvalidTransition
from core.ids import new_id
from models.base import Base, Sealed

DIRECT = "direct"
"""`Delivery.target_key` of the URL that came with the job or batch itself."""


class DeliveryStatus(StrEnum):
    """Where a delivery stands; see `DELIVERY_TRANSITIONS`."""

    PENDING = "pending"
    RUNNING = "running"
    DELIVERED = "delivered"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether no further attempt will be made unless somebody replays it."""
        return self in (
            DeliveryStatus.DELIVERED,
            DeliveryStatus.FAILED,
            DeliveryStatus.CANCELLED,
        )


DELIVERY_TRANSITIONS: Mapping[DeliveryStatus, frozenset[DeliveryStatus]] = MappingProxyType(
    {
        DeliveryStatus.PENDING: frozenset(
            {DeliveryStatus.RUNNING, DeliveryStatus.FAILED, DeliveryStatus.CANCELLED}
        ),
        DeliveryStatus.RUNNING: frozenset(
            {
                DeliveryStatus.DELIVERED,
                DeliveryStatus.PENDING,  # the attempt failed, another follows
                DeliveryStatus.FAILED,
                DeliveryStatus.CANCELLED,
            }
        ),
        # The last three: a person replays.
        DeliveryStatus.DELIVERED: frozenset({DeliveryStatus.PENDING}),
        DeliveryStatus.FAILED: frozenset({DeliveryStatus.PENDING}),
        DeliveryStatus.CANCELLED: frozenset({DeliveryStatus.PENDING}),
    }
)


class Delivery(Base):
    """Bringing one event to one target, with all its attempts.

    The unique pair (event, target) is what makes "one delivery an event" true however often the
    code that creates them runs.

    Attributes:
        event_id: The `webhook-id`, the same over all attempts and targets of one event.
        subject_id: The job, batch or endpoint that the event is about. No foreign key: what waits
            to be delivered outlives the job when its retention ends.
        target_key: The endpoint's id, or `DIRECT`.
        target_host: Scheme, host and port: attempts are spread fairly over hosts.
        secret: The job's own `whsec_…`; None means the endpoint's, else the key's.
        body: The exact bytes that are signed and sent.
        attempt: Number of the present or last attempt; the fencing token of its writes.
        step: Position in the retry schedule; a replay starts again at 0.
        last_status: HTTP status of the newest answer.
        last_error: Why the newest attempt failed.
    """

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("event_id", "target_key"),
        CheckConstraint(
            "status IN ('pending', 'running', 'delivered', 'failed', 'cancelled')", name="status"
        ),
        CheckConstraint(
            "(status = 'pending') = (next_attempt_at IS NOT NULL)", name="pending_has_a_time"
        ),
        CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL)", name="running_has_lease"
        ),
        CheckConstraint(
            "(status IN ('delivered', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="final_has_finished_at",
        ),
        Index("ix_deliveries_due", "status", "next_attempt_at"),
        Index("ix_deliveries_running_host", "status", "target_host"),
        Index("ix_deliveries_key_id_id", "key_id", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id"))
    event_id: Mapped[UUID]
    event_type: Mapped[str] = mapped_column(String(64))
    subject_id: Mapped[UUID] = mapped_column(index=True)
    endpoint_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("webhook_endpoints.id", ondelete="SET NULL"), index=True
    )
    target_key: Mapped[str] = mapped_column(String(36))
    target_host: Mapped[str] = mapped_column(String(300))
    url: Mapped[str] = mapped_column(Text)
    secret: Mapped[str | None] = mapped_column(Sealed)
    body: Mapped[bytes] = mapped_column(LargeBinary)
    status: Mapped[DeliveryStatus] = mapped_column(String(16), default=DeliveryStatus.PENDING)
    attempt: Mapped[int] = mapped_column(default=0)
    step: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    last_status: Mapped[int | None]
    last_error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    def claim(self, *, until: datetime) -> None:
        """Begin the next attempt, which is its caller's until then."""
        self.move_to(DeliveryStatus.RUNNING, now=until)
        self.attempt += 1
        self.lease_expires_at = until

    def move_to(
        self, status: DeliveryStatus, *, now: datetime, next_attempt_at: datetime | None = None
    ) -> None:
        """Change the status and the columns that go with it.

        Args:
            next_attempt_at: When a pending delivery is due; `now` if not given.

        Raises:
            InvalidTransition: `DELIVERY_TRANSITIONS` has no such edge.
        """
        if status not in DELIVERY_TRANSITIONS[DeliveryStatus(self.status)]:
            raise InvalidTransition(
                f"Delivery {self.id} is {self.status}; it cannot become {status}."
            )
        is_pending = status is DeliveryStatus.PENDING
        self.status = status
        self.next_attempt_at = (next_attempt_at or now) if is_pending else None
        self.lease_expires_at = None
        self.finished_at = now if status.is_final else None


class DeliveryAttempt(Base):
    """One try: what was answered and how long it took.

    Attributes:
        number: `Delivery.attempt` of the try, from 1.
        response_body: At most the first KiB, as text.
        error: Why it did not count as delivered; None on a 2xx.
    """

    __tablename__ = "delivery_attempts"

    delivery_id: Mapped[UUID] = mapped_column(
        ForeignKey("deliveries.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    started_at: Mapped[datetime]
    duration_ms: Mapped[int]
    response_status: Mapped[int | None]
    response_body: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
