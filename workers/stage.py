"""Runs a stage of a job that is claimed on the job's row: `prepare` and `finish`."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import structlog

from core.db import read_session, unit_of_work
from core.errors import LeaseLost, ScriptoriumError
from core.options import TranscribeOptions
from lifecycle.jobs import delete_object, delete_windows_objects, transcript_key
from lifecycle.leftovers import find_unused_media
from lifecycle.media import media_key
from lifecycle.stages import claim_stage, fail_stage, release_stage, renew_stage
from models import Job, JobStage
from workers.context import WorkerContext
from workers.heartbeat import Heartbeat

log = structlog.get_logger(__name__)


class WorkerStopping(Exception):
    """This process is about to end; the claim is given back for another to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageClaim:
    """The right to work on one stage of a job.

    Attributes:
        job: As it was when claimed, with its media; detached.
    """

    context: WorkerContext
    job: Job
    options: TranscribeOptions
    heartbeat: Heartbeat

    def check(self) -> None:
        """Stop work that nobody wants any more; call it now and then.

        Raises:
            LeaseLost: The heartbeat found the claim gone.
            WorkerStopping: The process should end.
        """
        if self.heartbeat.lost.is_set():
            raise LeaseLost(f"Attempt {self.job.attempt} of job {self.job.id} is over.")
        if self.context.stopping.is_set():
            raise WorkerStopping


def run_stage(
    context: WorkerContext,
    job_id: UUID,
    stage: JobStage,
    work: Callable[[StageClaim], None],
    *,
    admit: Callable[[Job], bool] = lambda _job: True,
) -> None:
    """Claim the stage and do its work; do nothing if it is not to be had.

    Messages arrive at least once, late, or for jobs that are over: all of that is harmless.

    Args:
        admit: See `lifecycle.stages.claim_stage`.
    """
    with unit_of_work(context.sessions) as uow:
        job = claim_stage(
            uow,
            context.publisher,
            job_id,
            stage,
            lease=context.lease,
            admit=admit,
            now=context.now(),
        )
    if job is None:
        log.info("stage.skipped", job_id=str(job_id), stage=stage)
        return
    with structlog.contextvars.bound_contextvars(
        job_id=str(job_id), stage=str(stage), attempt=job.attempt
    ):
        log.info("stage.claimed")
        try:
            _work(context, job, stage, work)
        except LeaseLost as exc:
            log.warning("stage.abandoned", reason=str(exc))
            _forget_objects(context, job)


def _forget_objects(context: WorkerContext, job: Job) -> None:
    """Delete what was written for a job that had been deleted; no row names it any more."""
    with read_session(context.sessions) as session:
        if session.get(Job, job.id) is not None:
            return
        unused = find_unused_media(session, [media_key(job.media_id)])
    delete_windows_objects(context.storage, job.id)
    for key in (transcript_key(job.id), *unused):
        delete_object(context.storage, key)


def _work(
    context: WorkerContext, job: Job, stage: JobStage, work: Callable[[StageClaim], None]
) -> None:
    def renew() -> None:
        with unit_of_work(context.sessions) as uow:
            renew_stage(
                uow.session,
                job.id,
                stage,
                attempt=job.attempt,
                lease=context.lease,
                now=context.now(),
            )

    def release() -> None:
        with unit_of_work(context.sessions) as uow:
            release_stage(uow, context.queue, job.id, stage, attempt=job.attempt)
        log.info("stage.released")

    context.give_up[job.id] = release
    try:
        options = TranscribeOptions.model_validate(job.options)
        with Heartbeat(renew, interval_s=context.heartbeat_s) as heartbeat:
            work(StageClaim(context=context, job=job, options=options, heartbeat=heartbeat))
    except LeaseLost:
        raise
    except WorkerStopping:
        release()
    except Exception as exc:  # the edge: whatever it was, the row must say so
        is_expected = isinstance(exc, ScriptoriumError)
        log.warning("stage.failed", error=str(exc), exc_info=not is_expected)
        with unit_of_work(context.sessions) as uow:
            fail_stage(
                uow,
                context.publisher,
                job.id,
                stage,
                attempt=job.attempt,
                error=exc,
                max_attempts=context.settings.max_attempts,
                now=context.now(),
            )
    else:
        log.info("stage.finished")
    finally:
        context.give_up.pop(job.id, None)
