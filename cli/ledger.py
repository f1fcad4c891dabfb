"""What `scriptorium transcribe` has done, so that a run that was interrupted goes on.

Kept as SQLite in the data directory rather than beside the recordings: those may lie where nobody
may write, and people's folders are not ours to litter. Paths are stored as the bytes of the file
system: not every file name is text.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock

from cli.sources import Source
from core.errors import ServiceUnavailable
from core.sqlite import BUSY_TIMEOUT_S, use_wal

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    source BLOB NOT NULL,
    fingerprint TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('submitting', 'submitted', 'done', 'failed')),
    job_id TEXT,
    PRIMARY KEY (source, fingerprint)
);
CREATE TABLE IF NOT EXISTS outputs (
    path BLOB PRIMARY KEY,
    source BLOB NOT NULL,
    fingerprint TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS outputs_by_file ON outputs (source, fingerprint);
CREATE TABLE IF NOT EXISTS transfers (
    source BLOB NOT NULL,
    fingerprint TEXT NOT NULL,
    upload_id TEXT NOT NULL,
    is_complete INTEGER NOT NULL,
    batch_key TEXT,
    PRIMARY KEY (source, fingerprint)
);
CREATE INDEX IF NOT EXISTS transfers_by_batch ON transfers (batch_key);
CREATE TABLE IF NOT EXISTS batches (
    key TEXT PRIMARY KEY,
    body BLOB NOT NULL,
    batch_id TEXT
);
"""


class State(StrEnum):
    """How far a file has come.

    `submitting` is written before the upload: should we die before the answer, the job is found by
    its reference. `failed` files are tried again by the next run.
    """

    SUBMITTING = "submitting"
    SUBMITTED = "submitted"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How far a file is on its way into a batch of a distant server.

    Attributes:
        is_complete: Whether all its bytes have arrived.
        batch_key: The batch whose manifest names it; see `Manifest`.
    """

    upload_id: str
    is_complete: bool = False
    batch_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A batch's lines, written down before they are sent.

    Attributes:
        key: Idempotency key of the request: sent again, it answers with the same batch.
        body: The request's body; empty once `batch_id` is known.
    """

    key: str
    body: bytes
    batch_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of a file under one set of settings.

    Attributes:
        outputs: Transcripts written for it.
        transfer: Where it is on its way, in a run that uses batches.
    """

    state: State
    job_id: str | None
    outputs: tuple[Path, ...]
    transfer: Transfer | None = None


class Ledger:
    """Its threads write one after the other; several processes may share the file.

    A fingerprint stands for everything that changes the transcripts: server, model and revision,
    options, formats, place.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._writing = Lock()

    def find(self, source: Source, fingerprint: str) -> Entry | None:
        """Return the entry, unless there is none or the file has changed since."""
        row = self._connection.execute(
            "SELECT state, job_id FROM files WHERE source = ? AND fingerprint = ?"
            " AND size_bytes = ? AND mtime_ns = ?",
            (_blob(source.path), fingerprint, source.size_bytes, source.mtime_ns),
        ).fetchone()
        if row is None:
            return None
        outputs = self._connection.execute(
            "SELECT path FROM outputs WHERE source = ? AND fingerprint = ? ORDER BY path",
            (_blob(source.path), fingerprint),
        )
        return Entry(
            state=State(row[0]),
            job_id=row[1],
            outputs=tuple(Path(os.fsdecode(path)) for (path,) in outputs),
            transfer=self._find_transfer(source, fingerprint),
        )

    def is_done(self, source: Source, fingerprint: str) -> bool:
        """Whether the file was transcribed under these settings and its transcripts still exist."""
        entry = self.find(source, fingerprint)
        return (
            entry is not None
            and entry.state is State.DONE
            and bool(entry.outputs)
            and all(path.is_file() for path in entry.outputs)
        )

    def is_ours(self, output: Path, source: Source) -> bool:
        """Whether Scriptorium wrote this transcript, and for this very source."""
        found = self._connection.execute(
            "SELECT 1 FROM outputs WHERE path = ? AND source = ?",
            (_blob(output), _blob(source.path)),
        ).fetchone()
        return found is not None

    def own(self, source: Source, fingerprint: str, outputs: Iterable[Path]) -> None:
        """Note transcripts that are about to be written.

        Should we die before the entry says so, the next run finds them its own to replace.
        """
        with self._writing, self._connection:
            self._own(source, fingerprint, outputs)

    def record(
        self,
        source: Source,
        fingerprint: str,
        state: State,
        *,
        job_id: str | None = None,
        outputs: Iterable[Path] = (),
        transfer: Transfer | None = None,
    ) -> None:
        """Set the entry; durable when this returns."""
        with self._writing, self._connection:
            before = self._find_transfer(source, fingerprint)
            self._connection.execute(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)",
                (
                    _blob(source.path),
                    fingerprint,
                    source.size_bytes,
                    source.mtime_ns,
                    state,
                    job_id,
                ),
            )
            self._own(source, fingerprint, outputs)
            self._replace_transfer(source, fingerprint, before, transfer)

    def ship(self, manifest: Manifest, sources: Iterable[Source], fingerprint: str) -> None:
        """Note a batch that is about to be sent, and the files in it; all of it or nothing."""
        with self._writing, self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO batches VALUES (?, ?, ?)",
                (manifest.key, manifest.body, manifest.batch_id),
            )
            self._connection.executemany(
                "UPDATE transfers SET batch_key = ? WHERE source = ? AND fingerprint = ?",
                [(manifest.key, _blob(source.path), fingerprint) for source in sources],
            )

    def note_batch(self, key: str, batch_id: str) -> None:
        """Note the server's name for a batch; what was sent is no longer needed."""
        with self._writing, self._connection:
            self._connection.execute(
                "UPDATE batches SET batch_id = ?, body = ? WHERE key = ?", (batch_id, b"", key)
            )

    def find_manifest(self, key: str) -> Manifest | None:
        """Return a batch that was about to be sent, or was, and has files that are not done."""
        row = self._connection.execute(
            "SELECT body, batch_id FROM batches WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else Manifest(key=key, body=row[0], batch_id=row[1])

    def _own(self, source: Source, fingerprint: str, outputs: Iterable[Path]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO outputs VALUES (?, ?, ?)",
            [(_blob(path), _blob(source.path), fingerprint) for path in outputs],
        )

    def _find_transfer(self, source: Source, fingerprint: str) -> Transfer | None:
        row = self._connection.execute(
            "SELECT upload_id, is_complete, batch_key FROM transfers"
            " WHERE source = ? AND fingerprint = ?",
            (_blob(source.path), fingerprint),
        ).fetchone()
        if row is None:
            return None
        return Transfer(upload_id=row[0], is_complete=bool(row[1]), batch_key=row[2])

    def _replace_transfer(
        self, source: Source, fingerprint: str, before: Transfer | None, after: Transfer | None
    ) -> None:
        if after is not None:
            self._connection.execute(
                "INSERT OR REPLACE INTO transfers VALUES (?, ?, ?, ?, ?)",
                (
                    _blob(source.path),
                    fingerprint,
                    after.upload_id,
                    after.is_complete,
                    after.batch_key,
                ),
            )
        elif before is not None:
            self._connection.execute(
                "DELETE FROM transfers WHERE source = ? AND fingerprint = ?",
                (_blob(source.path), fingerprint),
            )
        if before is not None and before.batch_key is not None:
            self._connection.execute(
                "DELETE FROM batches WHERE key = ?1"
                " AND NOT EXISTS (SELECT 1 FROM transfers WHERE batch_key = ?1)",
                (before.batch_key,),
            )


@contextmanager
def open_ledger(path: Path) -> Iterator[Ledger]:
    """Open the ledger, creating it and its folder the first time.

    Raises:
        ServiceUnavailable: It cannot be written, now or later: without it nothing would resume.
    """
    try:
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise ServiceUnavailable(f"{path} cannot be kept: {exc.strerror}.") from exc
    try:
        with closing(
            sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
        ) as connection:
            use_wal(connection)
            connection.executescript(_SCHEMA)
            yield Ledger(connection)
    except sqlite3.DatabaseError as exc:
        raise ServiceUnavailable(f"{path} cannot be kept: {exc}.") from exc


def fingerprint_of(settings: dict[str, object]) -> str:
    """Return a short name of a set of settings."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _blob(path: Path) -> bytes:
    return os.fsencode(path)
