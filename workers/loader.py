"""Claims the next window batch and fetches its audio, while the model runs the present one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import structlog

from adapters.base import AdapterSpec, Samples
from adapters.base import Window as AdapterWindow
from core.audio.flac import decode_flac
from core.db import read_session, unit_of_work
from core.errors import MediaError, MediaUndecodable
from core.options import AUTO, TranscribeOptions
from lifecycle.claims import ClaimRequest, claim_windows, find_waiting_models
from lifecycle.fairness import Rotation
from lifecycle.jobs import voters_key
from lifecycle.voters import load_jobs, load_windows
from lifecycle.windows import WindowLease, lease_of
from models import Job, Window
from workers.batching import BatchLimits, choose_model, plan_batch, spread
from workers.context import WorkerContext
from workers.held import HeldWindows
from workers.loaded import LoadedAdapters
from workers.vote import NUM_VOTERS

log = structlog.get_logger(__name__)


POOL_BATCHES = 4
"""How many batches' worth of candidates are looked at to find windows that go well together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWindow:
    """A claimed window with its audio."""

    row: Window
    lease: WindowLease
    options: TranscribeOptions
    samples: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowBatch:
    """Windows for one forward pass of one checkpoint.

    Attributes:
        broken: Claimed windows whose audio cannot be read, and why.
        voters: The windows that vote, for each job without a settled language.
    """

    model: str
    spec: AdapterSpec
    windows: list[LoadedWindow]
    broken: list[tuple[Window, Exception]] = field(default_factory=list)
    voters: dict[UUID, list[AdapterWindow]] = field(default_factory=dict)

    @property
    def is_isolated(self) -> bool:
        """Whether it is one window that has failed before: nothing else may be at risk with it."""
        return any(window.row.failures for window in self.windows)


class BatchLoader:
    """One engine's view of the waiting windows. `next_batch` runs in one thread at a time."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        adapter: str,
        models: Sequence[str],
        name: str,
        held: HeldWindows,
        loaded: LoadedAdapters,
    ) -> None:
        self._context = context
        self._adapter = adapter
        self._models = models
        self._name = name
        self._held = held
        self._loaded = loaded
        self._rotation = Rotation()

    def next_batch(self) -> WindowBatch | None:
        """Claim windows and read their audio; None when nothing waits or the process ends.

        Raises:
            Transient: Storage does not answer; the claims are given back.
        """
        if self._context.stopping.is_set():
            return None
        claimed = self._claim()
        if claimed is None:
            return None
        batch, rows, jobs = claimed
        try:
            for row in rows:
                self._load(batch, row, jobs[row.job_id])
            for job in jobs.values():
                if self._needs_vote(batch, job):
                    batch.voters[job.id] = self._load_voters(batch, job)
        except Exception:
            self._held.release([lease_of(row) for row in rows])
            raise
        return batch

    def _claim(self) -> tuple[WindowBatch, list[Window], dict[UUID, Job]] | None:
        context = self._context
        with read_session(context.sessions) as session:  # most wake-ups find nothing: no lock then
            waiting = find_waiting_models(session, self._adapter, self._models)
        if not waiting:
            return None
        model = choose_model(waiting, self._loaded.current, served_s=self._loaded.served_s)
        spec = context.catalog.describe(model).spec
        settings = context.settings
        limits = BatchLimits(
            max_windows=settings.batch_windows,
            max_audio_ms=settings.batch_audio_s * 1000,
            padded_ms=spec.padded_ms,
        )
        request = ClaimRequest(
            adapter=self._adapter,
            model=model,
            engine=self._name,
            lease=context.lease,
            # Where every window costs the same there is nothing to choose from.
            pool=settings.batch_windows * (1 if spec.padded_ms >= spec.window_ms else POOL_BATCHES),
        )
        with unit_of_work(context.sessions) as uow:
            rows = claim_windows(
                uow.session,
                request,
                choose=partial(plan_batch, limits=limits),
                rotation=self._rotation,
                now=context.now(),
            )
            jobs = load_jobs(uow.session, (row.job_id for row in rows))
        if not rows:
            return None
        self._held.add(rows)
        return WindowBatch(model=model, spec=spec, windows=[]), rows, jobs

    def _load(self, batch: WindowBatch, row: Window, job: Job) -> None:
        try:
            samples = self._read(row)
        except MediaError as exc:
            batch.broken.append((row, exc))
            return
        options = TranscribeOptions.model_validate(job.options)
        batch.windows.append(
            LoadedWindow(row=row, lease=lease_of(row), options=options, samples=samples)
        )

    def _needs_vote(self, batch: WindowBatch, job: Job) -> bool:
        is_open = job.language is None and job.options.get("language", AUTO) == AUTO
        return batch.spec.detects_by_vote and is_open

    def _load_voters(self, batch: WindowBatch, job: Job) -> list[AdapterWindow]:
        if job.voters is not None:
            try:
                return self._load_excerpts(job.id, job.voters)
            except MediaError as exc:
                log.warning("voters.unreadable", job_id=str(job.id), error=str(exc))
        at_hand = {window.row.id: window.samples for window in batch.windows}
        with read_session(self._context.sessions) as session:
            rows = load_windows(session, job.id, spread(job.windows_total, NUM_VOTERS))
        voters: list[AdapterWindow] = []
        for row in rows:
            try:
                heard = at_hand[row.id] if row.id in at_hand else self._read(row)
                voters.append(AdapterWindow(key=str(row.id), samples=heard))
            except MediaError as exc:
                log.warning("voter.unreadable", window_id=str(row.id), error=str(exc))
        return voters

    def _load_excerpts(
        self, job_id: UUID, places: Sequence[tuple[int, int]]
    ) -> list[AdapterWindow]:
        key = voters_key(job_id)
        return [
            AdapterWindow(key=f"{key}:{start}", samples=self._decode(key, start, length))
            for start, length in places
        ]

    def _decode(self, key: str, start: int, num_bytes: int) -> Samples:
        data = self._context.storage.read(key, start=start, num_bytes=num_bytes)
        try:
            return decode_flac(data)
        except ValueError as exc:
            raise MediaUndecodable("the stored audio of a window is damaged") from exc

    def _read(self, row: Window) -> Samples:
        samples = self._decode(row.object_key, row.byte_offset, row.num_bytes)
        if len(samples) != row.num_samples:
            raise MediaUndecodable("the stored audio of a window is not complete")
        return samples
