"""`finish`: from the windows' hypotheses to the job's transcript."""

from uuid import UUID

from core.db import read_session, unit_of_work
from core.formats import get_format
from core.options import AUTO, MULTI
from core.transcript import Segment, Transcript
from lifecycle.completion import Outcome, complete_job
from lifecycle.jobs import delete_windows_objects_later, transcript_key
from lifecycle.preparation import list_windows
from lifecycle.stitch import (
    WindowResult,
    collect_warnings,
    dominant_language,
    measure_coverage,
    stitch,
)
from lifecycle.streaming import window_result
from models import JobStage
from workers.context import WorkerContext
from workers.stage import StageClaim, run_stage


def finish(context: WorkerContext, job_id: UUID) -> None:
    """Complete the job if it waits for that; see `workers.stage.run_stage`."""
    run_stage(context, job_id, JobStage.FINISH, _finish)


def _finish(claim: StageClaim) -> None:
    context, job = claim.context, claim.job
    with read_session(context.sessions) as session:
        windows = [window_result(row) for row in list_windows(session, job.id)]
    segments = stitch(windows)
    measured = job.coverage or {}
    duration_ms = job.duration_ms or 0
    transcript = Transcript(
        segments=segments,
        language=_language(claim, windows, segments),
        duration_ms=duration_ms,
        task=str(claim.options.task),
        model=job.model,
        warnings=tuple(dict.fromkeys([*job.warnings, *collect_warnings(windows)])),
    )
    key = transcript_key(job.id)
    written = get_format("json")
    context.storage.put(key, written.render(transcript).encode(), content_type=written.media_type)
    outcome = Outcome(
        transcript=transcript,
        transcript_key=key,
        coverage=measure_coverage(
            windows, duration_ms=duration_ms, speech_ms=int(measured.get("speech_ms", 0))
        ),
    )
    with unit_of_work(context.sessions) as uow:
        complete_job(
            uow, context.publisher, job.id, outcome, attempt=job.attempt, now=context.now()
        )
        delete_windows_objects_later(uow, context.storage, job.id)


def _language(
    claim: StageClaim, windows: list[WindowResult], segments: tuple[Segment, ...]
) -> str | None:
    """Return the transcript's language: as asked for, else as heard, None if nobody speaks."""
    asked = claim.options.language
    if asked not in (AUTO, MULTI):
        return asked
    if asked == MULTI or not segments:
        return None
    return claim.job.language or dominant_language(windows)
