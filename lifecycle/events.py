"""Events are written in the transaction of the change they tell of."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import update

from core.db import UnitOfWork
from core.events import EventType, JobEvent, Publisher
from lifecycle.batches import note_job_end
from lifecycle.deliveries import announce_end
from models import Event, Job


def record_event(
    uow: UnitOfWork,
    publisher: Publisher,
    job_id: UUID,
    event_type: EventType,
    data: dict[str, Any],
    *,
    now: datetime,
) -> JobEvent:
    """Append an event to the job and publish it once the transaction is durable.

    A job's last event also reaches its webhooks and its batch: both hear of it here.

    The UPDATE of `last_seq` locks the job's row, so that numbers are gapless and in commit order.
    """
    seq = uow.session.scalars(
        update(Job)
        .where(Job.id == job_id)
        .values(last_seq=Job.last_seq + 1)
        .returning(Job.last_seq)
        .execution_options(synchronize_session="fetch")
    ).one()
    uow.session.add(Event(job_id=job_id, seq=seq, type=event_type, data=data, created_at=now))
    event = JobEvent(job_id=job_id, seq=seq, type=event_type, data=data, created_at=now)
    uow.after_commit(partial(publisher.publish, event))
    if event_type.is_last:
        job = announce_end(uow, publisher, event)
        note_job_end(uow, publisher, job, now=now)
    return event
