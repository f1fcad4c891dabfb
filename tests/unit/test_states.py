"""Every edge a job may take and every one it may not."""

from datetime import UTC, datetime
from itertools import product

import pytest

from core.errors import InvalidTransition
from models import TRANSITIONS, WINDOW_TRANSITIONS, Job, JobStatus, WindowStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job_in(status: JobStatus) -> Job:
    return Job(status=status, lease_expires_at=NOW if status == JobStatus.RUNNING else None)


@pytest.mark.parametrize(("before", "after"), list(product(JobStatus, JobStatus)))
def test_a_job_moves_along_the_table_only(before: JobStatus, after: JobStatus) -> None:
    job = job_in(before)
    code = "internal_error" if after == JobStatus.FAILED else None
    if after in TRANSITIONS[before]:
        job.move_to(after, now=NOW, error_code=code)
        assert job.status == after
        assert (job.finished_at is not None) == after.is_final
        assert (job.error_code is not None) == (after == JobStatus.FAILED)
        assert job.lease_expires_at is None or after == JobStatus.RUNNING
    else:
        with pytest.raises(InvalidTransition):
            job.move_to(after, now=NOW, error_code=code)
        assert job.status == before


def test_every_status_has_a_row_and_completed_is_the_end() -> None:
    assert set(TRANSITIONS) == set(JobStatus)
    assert set(WINDOW_TRANSITIONS) == set(WindowStatus)
    assert not TRANSITIONS[JobStatus.COMPLETED]
    assert not WINDOW_TRANSITIONS[WindowStatus.DONE]


def test_a_retry_keeps_the_first_start() -> None:
    job = Job(status=JobStatus.QUEUED)
    job.move_to(JobStatus.RUNNING, now=NOW)
    job.move_to(JobStatus.CANCELLED, now=NOW)
    job.move_to(JobStatus.QUEUED, now=NOW)
    job.move_to(JobStatus.RUNNING, now=NOW.replace(year=2027))
    assert job.started_at == NOW
    assert job.finished_at is None
