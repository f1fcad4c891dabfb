from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base


class Event(Base):
    """A message about a job, written with the change it tells of, published after the commit.

    Attributes:
        seq: Number within the job, from 1, without gaps (`jobs.last_seq` counts them).
        type: A `core.events.EventType` value.
    """

    __tablename__ = "events"

    job_id: Mapped[UUID] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str] = mapped_column(String(64))
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
