"""Events are written in the transaction of the change they tell of."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from core.db import UnitOfWork
from core.events import EventType, JobEvent, Publisher
from lifecycle.batches import note_job_end
from lifecycle.deliveries import announce_end
from models import Event, Job


def record_event(
    uow: UnitOfWork,
    publisher: Publisher,
    job: Job,
    event_type: EventType,
    data: dict[str, Any],
    *,
    now: datetime,
) -> JobEvent:
    """Append an event to the job and publish it once the transaction is durable.

    A job's last event also reaches its webhooks and its batch: both hear of it here.

    Args:
        job: New, or locked in this transaction (`lifecycle.jobs.lock_job`) and as it is since then:
            so numbers are gapless and in commit order. Were it not, the events' primary key would
            refuse the second of two equal numbers.
    """
    job.last_seq += 1
    event = JobEvent(job_id=job.id, seq=job.last_seq, type=event_type, data=data, created_at=now)
    uow.session.add(Event(job_id=job.id, seq=event.seq, type=event_type, data=data, created_at=now))
    _publish_later(uow, publisher, event)
    if event_type.is_last:
        announce_end(uow, publisher, job, event)
        note_job_end(uow, publisher, job, now=now)
    return event


@dataclass
class _Publication:
    """Publishes all events of a transaction at once, in their order."""

    publisher: Publisher
    events: list[JobEvent]

    def __call__(self) -> None:
        self.publisher.publish(*self.events)


def _publish_later(uow: UnitOfWork, publisher: Publisher, event: JobEvent) -> None:
    for effect in uow.effects:
        if isinstance(effect, _Publication) and effect.publisher is publisher:
            effect.events.append(event)
            return
    uow.after_commit(_Publication(publisher, [event]))
