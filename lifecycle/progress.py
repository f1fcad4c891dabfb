"""How far a job is, in the words of the HTTP interface."""

from typing import Any

from models import Job, JobStatus


def describe_progress(job: Job) -> dict[str, Any]:
    """Return `progress` as `GET /v1/jobs/{id}` shows it; times are seconds.

    Until the media is cut completely (`prepared_at`) the totals still grow.
    """
    return {
        "windows_done": job.windows_done,
        "windows_total": job.windows_total,
        "audio_s_done": job.audio_ms_done / 1000,
        "audio_s_total": job.audio_ms_total / 1000,
        "percent": percent_done(job),
    }


def percent_done(job: Job) -> float:
    """Return 0..100 by audio; 100 means completed and nothing else does."""
    if job.status == JobStatus.COMPLETED:
        return 100.0
    if not job.audio_ms_total:
        return 0.0
    return min(99.9, job.audio_ms_done * 1000 // job.audio_ms_total / 10)


def describe_update(job: Job) -> dict[str, Any]:
    """Return the data of a `job.updated` event."""
    return {
        "status": str(job.status),
        "stage": str(job.stage),
        "language": job.language,
        "progress": describe_progress(job),
    }
