"""`prepare`: decode the media, cut it into windows, store their audio, insert their rows."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from uuid import UUID

import structlog

from adapters.base import AdapterSpec
from core.audio.decode import open_media
from core.audio.excerpts import find_speech
from core.audio.flac import encode_flac
from core.audio.media import DecodeLimits
from core.audio.plan import MediaSummary, iter_windows
from core.audio.windows import PlannedWindow
from core.db import read_session, unit_of_work
from core.errors import InvalidOption, MediaGone
from core.options import AUTO, Channels, TaskKind
from lifecycle.jobs import voters_key
from lifecycle.preparation import (
    NewWindow,
    Preparation,
    add_voters,
    add_windows,
    continue_prepared,
    finish_preparation,
    forget_windows,
    list_windows,
    resume_windows,
)
from models import Job, JobStage, Media, Window, WindowStatus
from workers.context import WorkerContext
from workers.fetch import fetch_media
from workers.lanes import LONG_MS, lane
from workers.reuse import hash_media, reuse_transcript
from workers.shards import ShardWriter
from workers.stage import StageClaim, run_stage

FIRST_WINDOW_MS = 12_000
"""Of a long recording: its text is there in half the time that 30 s take, and hardly costs more."""

_LOOK_EVERY_S = 0.05

log = structlog.get_logger(__name__)


class PlanChanged(Exception):
    """The media gives other windows than those that an earlier try inserted."""


def prepare(context: WorkerContext, job_id: UUID) -> None:
    """Prepare the job if it waits for that; see `workers.stage.run_stage`."""
    with lane(context) as admit:
        run_stage(context, job_id, JobStage.PREPARE, _prepare, admit=admit)


def _prepare(claim: StageClaim) -> None:
    context, job = claim.context, claim.job
    described = context.catalog.describe(job.model)
    spec = described.spec
    if claim.options.task is TaskKind.TRANSLATE and not spec.supports_translate:
        raise InvalidOption(f"{job.model} cannot translate.", param="task")
    preparation = Preparation(
        job_id=job.id,
        attempt=job.attempt,
        adapter=spec.name,
        revision=described.revision,
        is_claimable=job.voters is not None
        or not (spec.detects_by_vote and claim.options.language == AUTO),
    )
    known = _load_known(context, job)
    media = fetch_media(claim, job.media)
    is_same = job.revision in (None, described.revision) and _has_audio(context, known)
    if job.prepared_at is not None and is_same:
        with unit_of_work(context.sessions) as uow:
            continue_prepared(uow, context.publisher, context.queue, preparation, now=context.now())
        return
    sha256 = media.sha256 or hash_media(claim, media)
    if not known and reuse_transcript(
        claim, sha256, adapter=spec.name, revision=described.revision
    ):
        return
    preparer = _Preparer(claim, preparation, spec, media, sha256)
    if known and is_same:
        try:
            preparer.run(known)
        except PlanChanged:
            log.warning("windows.changed", num_known=len(known))
        else:
            return
    if known:
        with unit_of_work(context.sessions) as uow:
            forget_windows(uow, preparation)
    preparer.run(())


def _load_known(context: WorkerContext, job: Job) -> Sequence[Window]:
    """Return the windows that an earlier try inserted."""
    if not job.windows_total:
        return ()
    with read_session(context.sessions) as session:
        return list_windows(session, job.id)


def _has_audio(context: WorkerContext, windows: Sequence[Window]) -> bool:
    """Whether the audio of every window that is not done still lies in storage."""
    keys = {w.object_key for w in windows if w.status != WindowStatus.DONE}
    try:
        for key in keys:
            context.storage.stat(key)
    except MediaGone:
        return False
    return True


class _Preparer:
    """One pass over the media."""

    def __init__(
        self,
        claim: StageClaim,
        preparation: Preparation,
        spec: AdapterSpec,
        media: Media,
        sha256: str,
    ) -> None:
        self._sha256 = sha256
        self._claim = claim
        self._context = claim.context
        self._preparation = preparation
        self._spec = spec
        self._media = media

    def run(self, known: Sequence[Window]) -> None:
        """Insert the windows that come after the `known` ones of an earlier try.

        Planning depends on media and rules alone, so those can be compared and skipped.

        Raises:
            PlanChanged: They are not those that the media gives now.
        """
        context = self._context
        if known:
            with unit_of_work(context.sessions) as uow:
                resume_windows(uow, context.queue, self._preparation)
        with context.storage.local_path(self._media.storage_key) as path:
            size_bytes = path.stat().st_size
            limits = DecodeLimits.from_settings(context.settings)
            options = self._claim.options
            if not known and not self._preparation.is_claimable:
                self._find_voters(path, limits)
            with open_media(path, limits=limits, channels=options.channels) as stream:
                windows = iter_windows(
                    stream,
                    window_ms=self._spec.window_ms,
                    vad=options.vad,
                    first_window_ms=FIRST_WINDOW_MS if self._is_long else None,
                    on_block=self._claim.check,
                )
                shards = ShardWriter(
                    storage=context.storage,
                    preparation=self._preparation,
                    is_split=options.channels is Channels.SPLIT,
                    on_shard=self._insert,
                )
                for window, samples in windows:
                    self._claim.check()
                    if window.index >= len(known):
                        shards.add(window, samples, is_near_end=windows.is_near_end)
                    elif not _is_same(known[window.index], window):
                        raise PlanChanged
                if windows.summary.num_windows < len(known):
                    raise PlanChanged
                last = shards.take_rest()
                summary = windows.summary
        self._finish(last, summary, size_bytes)

    @property
    def _is_long(self) -> bool:
        """Whether somebody would wait long for the last words, and so wants the first ones soon."""
        return (self._claim.job.estimated_ms or 0) >= LONG_MS

    def _find_voters(self, path: Path, limits: DecodeLimits) -> None:
        """Let excerpts vote on the language, so that no window has to wait for the last one."""
        streams = [encode_flac(samples) for samples in find_speech(path, limits)]
        if not streams:
            return
        job_id = self._preparation.job_id
        self._context.storage.put(voters_key(job_id), b"".join(streams), content_type="audio/flac")
        lengths = [len(stream) for stream in streams]
        offsets = accumulate(lengths[:-1], initial=0)
        with unit_of_work(self._context.sessions) as uow:
            add_voters(uow, self._preparation, list(zip(offsets, lengths, strict=True)))
        self._preparation = replace(self._preparation, is_claimable=True)

    def _insert(self, windows: Sequence[NewWindow]) -> None:
        with unit_of_work(self._context.sessions) as uow:
            add_windows(
                uow,
                self._context.publisher,
                self._context.queue,
                self._preparation,
                windows,
                wake_ups=self._wake_ups(len(windows)),
                now=self._context.now(),
            )
        if windows[0].index == 0 and self._preparation.is_claimable:
            self._let_first_words_through()

    def _let_first_words_through(self) -> None:
        """Stand aside until a long recording's first window is recognised, or for a while.

        Beside a busy neighbour two threads of torch crawl, and somebody waits for that window. Of
        shorter recordings the last words come soon, and sooner from one large batch.
        """
        if not self._is_long:
            return
        deadline = time.monotonic() + self._context.settings.first_words_s
        while time.monotonic() < deadline:
            with read_session(self._context.sessions) as session:
                if session.get_one(Job, self._preparation.job_id).windows_done:
                    return
            self._claim.check()
            self._context.stopping.wait(_LOOK_EVERY_S)

    def _finish(self, last: Sequence[NewWindow], summary: MediaSummary, size_bytes: int) -> None:
        """Insert the last windows and record that there are no more.

        The first words need no push here: nothing of this recording is left to be decoded.
        """
        media = self._media
        with unit_of_work(self._context.sessions) as uow:
            finish_preparation(
                uow,
                self._context.publisher,
                self._context.queue,
                self._preparation,
                last,
                duration_ms=summary.duration_ms,
                media_size_bytes=size_bytes if media.size_bytes is None else None,
                media_sha256=self._sha256 if media.sha256 is None else None,
                coverage={"duration_ms": summary.duration_ms, "speech_ms": summary.speech_ms},
                warnings=summary.warnings,
                wake_ups=self._wake_ups(summary.num_windows),
                now=self._context.now(),
            )

    def _wake_ups(self, num_windows: int) -> int:
        return -(-num_windows // self._context.settings.batch_windows)


def _is_same(row: Window, planned: PlannedWindow) -> bool:
    return (
        row.start_sample == planned.start_sample
        and row.num_samples == planned.num_samples
        and (row.channel is None or row.channel == planned.channel)
    )
