from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base


class IdempotentAnswer(Base):
    """The answer to a request that created something, to be given again for the same key.

    The row is inserted in the transaction that creates the thing: there is no answer without it,
    and of many requests at once the unique primary key lets one create.

    Attributes:
        idempotency_key: Hex SHA-256 of what the caller sent in `Idempotency-Key`.
        fingerprint: Hex SHA-256 of what was asked, by meaning: a form's boundary does not count.
        subject_id: What was created; the row goes when it is deleted.
        body: The JSON that was answered, sealed; see `lifecycle.idempotency`.
        location: The `Location` header that was answered.
    """

    __tablename__ = "idempotent_answers"
    __table_args__ = (Index("ix_idempotent_answers_created_at", "created_at"),)

    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id"), primary_key=True)
    idempotency_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    subject_id: Mapped[UUID | None] = mapped_column(index=True)
    status: Mapped[int]
    body: Mapped[bytes] = mapped_column(LargeBinary)
    location: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
