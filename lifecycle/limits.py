"""What a key may use: the deployment's limits with the key's own over them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.errors import InvalidOption, LimitExceeded
from core.options import Priority
from core.settings import Settings
from models import ApiKey, Job, JobStatus

ACTIVE = (JobStatus.QUEUED, JobStatus.RUNNING)
RETRY_AFTER_S = 30
"""When to come back after too many jobs: about as long as a short recording takes."""

NAMES = ("requests_per_min", "active_jobs", "queued_audio_s", "upload_bytes", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one key; None is no limit.

    Attributes:
        active_jobs: Most jobs that have not ended.
        queued_audio_s: Most audio in jobs that have not ended, as far as its length is known.
        priority: The best class that the key's jobs get.
    """

    requests_per_min: int | None
    active_jobs: int | None
    queued_audio_s: int | None
    upload_bytes: int
    priority: Priority

    @classmethod
    def of(cls, settings: Settings, own: Mapping[str, Any]) -> Self:
        """Return the limits of a key whose `limits` column is `own`."""
        defaults = {
            "requests_per_min": settings.limit_requests_per_min,
            "active_jobs": settings.limit_active_jobs,
            "queued_audio_s": settings.limit_queued_audio_s,
        }
        chosen = {name: own.get(name, default) or None for name, default in defaults.items()}
        upload_bytes = own.get("upload_bytes") or settings.max_upload_bytes
        return cls(
            **chosen,
            upload_bytes=min(upload_bytes, settings.max_upload_bytes),
            priority=Priority[str(own.get("priority", "interactive")).upper()],
        )

    def clamp(self, priority: Priority) -> Priority:
        """Return the class that a job which asks for `priority` gets; lower goes first."""
        return max(priority, self.priority)


def limits_of(session: Session, settings: Settings, key_id: UUID) -> Limits:
    """Return the limits of a key."""
    return Limits.of(settings, session.get_one(ApiKey, key_id).limits)


def check_own_limits(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an administrator wants a key's `limits` to be.

    Raises:
        InvalidOption: A name is unknown or a value out of range.
    """
    for name, value in own.items():
        if name not in NAMES:
            raise InvalidOption(f"{name}: limits are {', '.join(NAMES)}", param=name)
        if name == "priority":
            if value not in (known := [priority.name.lower() for priority in Priority]):
                raise InvalidOption(f"priority: one of {', '.join(known)}", param=name)
        elif not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidOption(f"{name}: a whole number, 0 for no limit", param=name)
    return dict(own)


def check_submission(session: Session, limits: Limits, key_id: UUID) -> None:
    """Refuse another job beyond the key's limits; call it in the transaction that adds the job.

    Raises:
        LimitExceeded: There are too many jobs, or too much audio, that have not ended.
    """
    if limits.active_jobs is None and limits.queued_audio_s is None:
        return
    # Submissions of one key take turns, so that they cannot pass the limit side by side.
    session.execute(select(ApiKey.id).where(ApiKey.id == key_id).with_for_update())
    num_jobs, audio_s = active_work(session, key_id)
    if limits.active_jobs is not None and num_jobs >= limits.active_jobs:
        raise LimitExceeded(
            f"{num_jobs} jobs of this key have not ended; its limit is {limits.active_jobs}.",
            retry_after_s=RETRY_AFTER_S,
            numbers={"limit-jobs": limits.active_jobs, "remaining-jobs": 0},
        )
    if limits.queued_audio_s is not None and audio_s >= limits.queued_audio_s:
        raise LimitExceeded(
            f"{audio_s} s of audio of this key wait; its limit is {limits.queued_audio_s} s.",
            retry_after_s=RETRY_AFTER_S,
            numbers={"limit-audio-s": limits.queued_audio_s, "remaining-audio-s": 0},
        )


def active_work(session: Session, key_id: UUID) -> tuple[int, int]:
    """Return how many jobs of the key have not ended, and their audio in seconds."""
    remaining_ms = func.coalesce(Job.duration_ms, Job.estimated_ms, Job.audio_ms_total)
    num_jobs, audio_ms = session.execute(
        select(func.count(), func.coalesce(func.sum(remaining_ms), 0)).where(
            Job.key_id == key_id, Job.status.in_(ACTIVE)
        )
    ).one()
    return int(num_jobs), int(audio_ms) // 1000
