"""Segments become events while windows are still missing: in transcript order, exactly once."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, select

from core.db import UnitOfWork
from core.events import EventType, Publisher
from core.logprobs import describe_logprobs, trim_logprobs
from core.options import TranscribeOptions
from core.transcript import (
    SAMPLE_RATE_HZ,
    Segment,
    join_texts,
    load_hypothesis,
    samples_to_ms,
)
from lifecycle.deltas import has_deltas, may_tell_early, tell_early, tell_final
from lifecycle.events import record_event
from lifecycle.stitch import WindowResult, stitch
from models import Job, Window, WindowStatus

SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000
SETTLED = (WindowStatus.DONE, WindowStatus.FAILED)

# Built once: putting a statement together costs more than running it.
_OF_JOB = Window.job_id == bindparam("job_id")
_FRONTIER = (
    select(
        Window.start_sample,
        Window.num_samples,
        Window.channel,
        select(func.min(Window.start_sample))
        .where(_OF_JOB, Window.status.not_in(SETTLED))
        .correlate(None)
        .scalar_subquery()
        .label("missing_sample"),
    )
    .where(_OF_JOB)
    .order_by(Window.index.desc())
    .limit(1)
)
"""A job's last window, and where its first one begins that is not settled."""

_SETTLED_BETWEEN = (
    select(Window)
    .where(
        _OF_JOB,
        Window.status == WindowStatus.DONE,
        Window.start_sample < bindparam("before_sample"),
        Window.start_sample + Window.num_samples > bindparam("after_sample"),
    )
    .order_by(Window.index)
)


def stream_segments(uow: UnitOfWork, publisher: Publisher, job: Job, *, now: datetime) -> None:
    """Record an event for each segment of a locked job that has become final.

    A segment is final when it starts before the first window that is not settled; one that was
    finished early waits for its predecessors. `jobs.streamed_until_ms` is the cursor.
    """
    uow.session.flush()
    until_ms = _find_frontier_ms(uow, job)
    since_ms = job.streamed_until_ms
    if until_ms <= since_ms:
        return
    rows = uow.session.scalars(
        _SETTLED_BETWEEN,
        {
            "job_id": job.id,
            "before_sample": (until_ms + 1) * SAMPLES_PER_MS,
            "after_sample": (since_ms - 1) * SAMPLES_PER_MS,
        },
    ).all()
    windows = [window_result(row) for row in rows]
    final = [s for s in stitch(windows) if since_ms <= s.start_ms < until_ms]
    head_end_ms = next((w.end_ms for w in windows if w.start_ms >= since_ms), None)
    if final or head_end_ms is not None:  # else a pause was passed, and what was told still runs
        end_ms = until_ms if head_end_ms is None else head_end_ms
        record_segments(uow, publisher, job, final, head_end_ms=end_ms, now=now)
    job.streamed_until_ms = until_ms


def record_segments(
    uow: UnitOfWork,
    publisher: Publisher,
    job: Job,
    segments: Sequence[Segment],
    *,
    head_end_ms: int,
    now: datetime,
) -> None:
    """Record the events of segments that have become final, in transcript order.

    Args:
        head_end_ms: End of the window of which text may have been told already.
    """
    if has_deltas(job):
        head = join_texts(s.text for s in segments if s.start_ms < head_end_ms)
        rest = join_texts(s.text for s in segments if s.start_ms >= head_end_ms)
        tell_final(uow, publisher, job, head, rest, now=now)
    for segment in segments:
        data = describe_segment(segment)
        record_event(uow, publisher, job, EventType.SEGMENT, data, now=now)


def stream_text(
    uow: UnitOfWork, publisher: Publisher, job: Job, window: Window, text: str, *, now: datetime
) -> bool:
    """Record what `text`, a running window's so far, adds, if all before it has been told.

    Returns:
        Whether an event was recorded.
    """
    options = TranscribeOptions.parse(job.options)
    if not may_tell_early(options) or samples_to_ms(window.start_sample) < job.streamed_until_ms:
        return False
    is_first = uow.session.scalar(
        select(func.count()).where(
            Window.job_id == job.id, Window.index < window.index, Window.status.not_in(SETTLED)
        )
    )
    return is_first == 0 and tell_early(uow, publisher, job, text, now=now)


def window_result(row: Window) -> WindowResult:
    """Return the value that `lifecycle.stitch` works on."""
    return WindowResult(
        start_sample=row.start_sample,
        num_samples=row.num_samples,
        channel=row.channel,
        hypothesis=None if row.hypothesis is None else load_hypothesis(row.hypothesis),
        error_code=row.error_code,
    )


def describe_segment(segment: Segment) -> dict[str, Any]:
    """Return the data of a `transcript.segment` event; times are seconds in the media."""
    data: dict[str, Any] = {
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "text": segment.text,
        "language": segment.language,
        "channel": segment.channel,
    }
    if segment.words:
        data["words"] = [
            {
                "word": word.text,
                "start": word.start_ms / 1000,
                "end": word.end_ms / 1000,
                "probability": word.probability,
            }
            for word in segment.words
        ]
    if segment.token_logprobs:
        data["logprobs"] = describe_logprobs(trim_logprobs(segment.token_logprobs))
    return data


def _find_frontier_ms(uow: UnitOfWork, job: Job) -> int:
    """Return before which time no segment can appear any more."""
    last = uow.session.execute(_FRONTIER, {"job_id": job.id}).first()
    if last is None:
        return 0
    if job.prepared_at is None and last.channel is not None:
        return 0  # windows of several channels come in no order of time
    if last.missing_sample is not None:
        return samples_to_ms(last.missing_sample)
    end_ms = samples_to_ms(last.start_sample + last.num_samples)
    return end_ms if job.prepared_at is None else max(end_ms, job.duration_ms or 0) + 1
