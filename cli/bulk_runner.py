"""Recordings through a distant server: uploads in parts, batches as they arrive, results.

Nothing waits for the last upload: what has arrived goes into a batch at once. An interrupted run
sends nothing twice: what it is about to do is in the ledger first, under a name by which the server
knows it again.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cli.bulk_steps import (
    Announced,
    BulkOutcome,
    BulkSteps,
    Load,
    Looked,
    Posted,
    Rejected,
    Sent,
    Shipment,
    write_manifest,
)
from cli.client import NotNow
from cli.ledger import Manifest, State, Transfer
from cli.run_loop import NUM_UPLOADS, RunLoop
from cli.steps import FileResult, Gone, Item, Pending, Running, failed

MAX_IN_FLIGHT = 500
MAX_IN_FLIGHT_BYTES = 16 << 30
MIN_IN_FLIGHT = 32
"""Recordings between their announcement and their transcript: at most so many files and bytes (but
some, however large), so that the server's disk holds a part of the archive and ours no more than
their names."""

BATCH_FILES = 100
LINGER_S = 0.5
LONG_LINGER_S = 5.0
"""How long a recording waits for others to fill its batch: longer while the server has work."""

_MAX_RESTARTS = 3
_ENDS = frozenset({"completed", "failed", "cancelled"})
_FORGOTTEN = frozenset({"not_found", "upload_incomplete"})
"""Why a line fails whose upload has expired: it has to be sent again."""


@dataclass
class BulkRunner(RunLoop[BulkOutcome]):
    """Batches of uploads."""

    bulk: BulkSteps = field(kw_only=True)
    _to_upload: dict[Load, None] = field(default_factory=dict)
    _ready: deque[Load] = field(default_factory=deque)
    _ready_since_s: float = 0.0
    _shipments: dict[str, Shipment] = field(default_factory=dict)
    _to_collect: dict[Load, None] = field(default_factory=dict)
    _in_flight_bytes: int = 0

    # Beginning steps ------------------------------------------------------------------------

    def _start_steps(self, now_s: float) -> None:
        while self._has_room():
            self._admit(_as_load(self._waiting.popleft()), now_s)
        for load in self._next_uploads(now_s):
            action: Any = self.bulk.announce if load.transfer is None else self.bulk.send
            self._begin(self._uploads, partial(self.steps.take, action, load), load)
        if self._is_time_to_ship(now_s):
            self._ship(now_s)
        for shipment in self._shipments.values():
            if self._is_due(shipment, now_s):
                step: Any = self.bulk.look if shipment.batch_id else self.bulk.post
                self._begin(self._watchers, partial(self.bulk.take, step, shipment), shipment)
        for load in self._to_collect:
            if self._is_due(load, now_s):
                self._begin(self._watchers, partial(self.steps.take, self.steps.look, load), load)

    def _has_room(self) -> bool:
        if not self._waiting or len(self._active) >= MAX_IN_FLIGHT:
            return False
        total_bytes = self._in_flight_bytes + self._waiting[0].source.size_bytes
        return len(self._active) < MIN_IN_FLIGHT or total_bytes <= MAX_IN_FLIGHT_BYTES

    def _admit(self, load: Load, now_s: float) -> None:
        load.since_s = now_s
        self._active[load] = None
        self._in_flight_bytes += load.source.size_bytes
        if load.entry is not None:
            load.transfer, load.job_id = load.entry.transfer, load.entry.job_id
        if load.job_id is not None:  # its transcripts were written, and have gone since
            self._to_collect[load] = None
            return
        if load.transfer is None or not load.transfer.is_complete:
            self._to_upload[load] = None
            return
        key = load.transfer.batch_key
        shipment = None if key is None else self._find_shipment(key, now_s)
        if shipment is None:
            load.transfer = replace(load.transfer, batch_key=None)
            self._add_ready(load, now_s)
        else:
            shipment.loads[load.reference] = load

    def _find_shipment(self, key: str, now_s: float) -> Shipment | None:
        """Return the batch of an earlier run."""
        if key not in self._shipments:
            manifest = self.ledger.find_manifest(key)
            if manifest is None:
                return None
            self._shipments[key] = Shipment(
                key=key,
                body=manifest.body,
                batch_id=manifest.batch_id,
                is_resumed=True,
                since_s=now_s,
            )
        return self._shipments[key]

    def _next_uploads(self, now_s: float) -> Iterator[Load]:
        """Yield what goes to the pool: few at a time, so that the first announced goes first."""
        num_free = 2 * NUM_UPLOADS - sum(load in self._busy for load in self._to_upload)
        for load in list(self._to_upload):
            if num_free <= 0:
                return
            if self._is_due(load, now_s):
                num_free -= 1
                yield load

    def _add_ready(self, load: Load, now_s: float) -> None:
        if not self._ready:
            self._ready_since_s = now_s
        self._ready.append(load)

    def _is_time_to_ship(self, now_s: float) -> bool:
        if not self._ready or len(self._ready) >= BATCH_FILES:
            return bool(self._ready)
        num_shipped = sum(len(shipment.loads) for shipment in self._shipments.values())
        linger_s = LINGER_S if num_shipped < BATCH_FILES else LONG_LINGER_S
        return not self._to_upload or now_s - self._ready_since_s >= linger_s

    def _ship(self, now_s: float) -> None:
        loads = [self._ready.popleft() for _ in range(min(BATCH_FILES, len(self._ready)))]
        self._ready_since_s = now_s
        plan = self.steps.plan
        body = write_manifest(loads, dict(plan.options))
        key = f"transcribe:{hashlib.sha256(body).hexdigest()}"
        sources = [load.source for load in loads]
        self.ledger.ship(Manifest(key=key, body=body), sources, plan.fingerprint)
        for load in loads:
            if load.transfer is not None:
                load.transfer = replace(load.transfer, batch_key=key)
        self._shipments[key] = Shipment(
            key=key, body=body, loads={load.reference: load for load in loads}, since_s=now_s
        )

    # Taking outcomes ------------------------------------------------------------------------

    def _take(self, subject: Pending, outcome: BulkOutcome, now_s: float) -> None:
        if isinstance(subject, Shipment):
            self._take_of_shipment(subject, outcome, now_s)
        elif isinstance(subject, Load):
            self._take_of_load(subject, outcome, now_s)

    def _take_of_load(self, load: Load, outcome: BulkOutcome, now_s: float) -> None:
        if isinstance(outcome, Announced):
            load.upload = outcome.upload
            self._note_transfer(load, Transfer(upload_id=outcome.upload["id"]))
        elif isinstance(outcome, Sent) and load.transfer is not None:
            del self._to_upload[load]
            self._note_transfer(load, replace(load.transfer, is_complete=True))
            self._add_ready(load, now_s)
        elif isinstance(outcome, Gone):
            self._restart(load)
        elif isinstance(outcome, Running):  # it was cancelled, and now goes on
            load.entry = None
            self._look_again(load, now_s)
        elif isinstance(outcome, FileResult):
            self._finish(load, outcome)

    def _note_transfer(self, load: Load, transfer: Transfer) -> None:
        load.transfer = transfer
        self.ledger.record(
            load.source, self.steps.plan.fingerprint, State.SUBMITTING, transfer=transfer
        )

    def _take_of_shipment(self, shipment: Shipment, outcome: BulkOutcome, now_s: float) -> None:
        loads = [load for load in shipment.loads.values() if load not in self._to_collect]
        if isinstance(outcome, Posted):
            shipment.batch_id, shipment.body = outcome.batch_id, b""
            self.ledger.note_batch(shipment.key, outcome.batch_id)
        elif isinstance(outcome, Looked):
            shipment.heard_s = outcome.audio_s_done
            for load in loads:
                self._note_item(load, outcome.items.get(load.reference), is_over=outcome.is_over)
            self._show_progress(shipment)
        elif isinstance(outcome, Rejected):
            for load in loads:
                self._finish(load, failed(load, outcome.code, outcome.message))
        elif isinstance(outcome, Gone):
            for load in loads:
                self._restart(load)
        self._look_again(shipment, now_s)

    def _note_item(self, load: Load, item: dict[str, Any] | None, *, is_over: bool) -> None:
        if item is None:
            if is_over:
                self._restart(load)
            return
        status, job_id, error = item["status"], item["job_id"], item["error"]
        if status == "failed" and error is not None:
            load.job_id = job_id
            if job_id is None and error["code"] in _FORGOTTEN:
                self._restart(load)
            else:
                self._finish(load, failed(load, error["code"], error["message"]))
        elif status == "cancelled" and job_id is None and load.entry is None:
            self._finish(load, failed(load, "cancelled", "the batch was cancelled on the server"))
        elif status in _ENDS:
            if job_id is None:  # the job was deleted, or cancelled before it was one
                self._restart(load)
            else:
                load.job_id, load.next_s = job_id, 0.0
                self._to_collect[load] = None

    def _restart(self, load: Load) -> None:
        """Send again what the server has forgotten."""
        self._leave(load)
        load.num_restarts += 1
        if load.num_restarts > _MAX_RESTARTS:
            self._finish(load, failed(load, "upload_lost", "the server forgets it again and again"))
            return
        load.transfer = load.upload = load.job_id = load.entry = None
        self._to_upload[load] = None

    def _give_up(self, subject: Pending, reason: NotNow) -> None:
        if isinstance(subject, Shipment):
            for load in [load for load in subject.loads.values() if load not in self._to_collect]:
                self._finish(load, failed(load, "internal_error", str(reason)))
        else:
            super()._give_up(subject, reason)

    def _finish(self, item: Item, result: FileResult) -> None:
        if isinstance(item, Load):
            shipment = self._leave(item)
            self._in_flight_bytes -= item.source.size_bytes
            if shipment is not None:
                shipment.finished_s += result.duration_s or 0.0
                self._show_progress(shipment)
        super()._finish(item, result)

    def _leave(self, load: Load) -> Shipment | None:
        """Take a recording out of wherever it is; return its batch if it was in one."""
        self._to_upload.pop(load, None)
        self._to_collect.pop(load, None)
        key = None if load.transfer is None else load.transfer.batch_key
        shipment = None if key is None else self._shipments.get(key)
        if shipment is not None:
            shipment.loads.pop(load.reference, None)
            if not shipment.loads:
                del self._shipments[shipment.key]
        return shipment

    def _show_progress(self, shipment: Shipment) -> None:
        """Show what is recognised of recordings that have no result yet."""
        if not shipment.is_resumed:
            heard_s = shipment.heard_s - shipment.finished_s if shipment.loads else 0.0
            self.tally.advance(shipment.key, max(0.0, heard_s))


def _as_load(item: Item) -> Load:
    return Load(source=item.source, stem=item.stem, reference=item.reference, entry=item.entry)
