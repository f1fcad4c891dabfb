"""What a batch would do, found out without doing it: bad lines, codecs, length, time."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any
from uuid import UUID

from sqlalchemy import select

from api.batch_schemas import DryRunView, PrefixBatch, UnusableLine
from api.batches import StoredManifest
from api.context import ApiContext
from api.remote_probe import probe_url
from core.audio.media import DecodeLimits, MediaInfo
from core.audio.probe import probe
from core.errors import InvalidOption, ScriptoriumError
from core.ndjson import iter_lines
from lifecycle.intake import Intake, find_media
from lifecycle.limits import limits_of
from lifecycle.manifest import MAX_LINE_BYTES, ParsedLine, parse_key, parse_line
from lifecycle.submissions import SourceKind
from lifecycle.uploads import object_key
from models import Job, JobStatus

MAX_PROBES = 200
PROBE_S = 30.0
"""Reading a header takes some 20 ms, one on another server more; a person waits for the answer."""

MAX_PROBLEMS = 100
RECENT_JOBS = 50


def preview_manifest(
    context: ApiContext, key_id: UUID, stored: StoredManifest, defaults: dict[str, Any],
    *, now: datetime,
) -> DryRunView:  # fmt: skip
    """Say what a stored manifest would do, and delete it; blocks."""
    settings = context.settings
    try:
        lines = iter_lines(context.storage.chunks(stored.key), start=0, max_bytes=MAX_LINE_BYTES)
        parsed = (parse_line(settings, line.data, defaults) for line in lines)
        return _dry_run(context, key_id, parsed, now=now)
    finally:
        context.storage.delete(stored.key)


def preview_prefix(
    context: ApiContext, key_id: UUID, body: PrefixBatch, *, now: datetime
) -> DryRunView:
    """Say what a batch of stored objects would do; blocks."""
    keys = (
        info.key
        for info in context.storage.list(body.prefix)
        if fnmatchcase(info.key.removeprefix(body.prefix), body.glob)
    )
    parsed = (parse_key(context.settings, key, body.options) for key in keys)
    return _dry_run(context, key_id, parsed, now=now)


def _dry_run(
    context: ApiContext, key_id: UUID, lines: Iterable[ParsedLine], *, now: datetime
) -> DryRunView:
    problems: list[UnusableLine] = []
    codecs: Counter[str] = Counter()
    seen: set[bytes] = set()
    total = usable = probed = tried = known_ms = num_known = 0
    deadline = time.monotonic() + PROBE_S
    for index, line in enumerate(lines):
        total += 1
        try:
            _check_once(line, seen)
            may_probe = tried < MAX_PROBES and time.monotonic() < deadline
            tried += may_probe
            found = _look(context, key_id, line, may_probe=may_probe, now=now)
        except ScriptoriumError as exc:
            if len(problems) < MAX_PROBLEMS:
                problems.append(
                    UnusableLine(
                        index=index, custom_id=line.custom_id, code=exc.code, message=str(exc)
                    )
                )
            continue
        usable += 1
        if found is not None:
            probed += 1
            codecs[found.codec] += 1
            known_ms += found.claimed_ms or 0
            num_known += found.claimed_ms is not None
    audio_s = known_ms / num_known * usable / 1000 if num_known else None
    return DryRunView(
        total=total,
        usable=usable,
        unusable=total - usable,
        problems=problems,
        probed=probed,
        audio_s=audio_s,
        codecs=dict(codecs),
        estimated_s=_estimate_s(context, key_id, audio_s),
    )


def _check_once(line: ParsedLine, seen: set[bytes]) -> None:
    """Raise the line's error, or that its name stood before; names are kept as short hashes."""
    if line.error is not None:
        raise line.error
    name = hashlib.blake2b((line.custom_id or "").encode(), digest_size=8).digest()
    if name in seen:
        raise InvalidOption(
            f"custom_id: {line.custom_id!r} stands in an earlier line", param="custom_id"
        )
    seen.add(name)


def _look(
    context: ApiContext, key_id: UUID, line: ParsedLine, *, may_probe: bool, now: datetime
) -> MediaInfo | None:
    """Return what a usable line's media is, None where nobody looked or headers do not tell.

    Raises:
        ScriptoriumError: The line could not become a job, or its job would fail.
    """
    if line.request is None:
        raise InvalidOption("the line names no media", param="media_key")
    source = line.request.source
    intake: Intake = context.intake
    find_media(intake, key_id, source, now=now)
    if not may_probe:
        return None
    settings = context.settings
    limits = DecodeLimits.from_settings(settings)
    if source.kind is SourceKind.MEDIA_URL:
        with context.sessions() as session:
            max_bytes = limits_of(session, settings, key_id).upload_bytes
        return probe_url(
            source.value,
            source.headers,
            limits=limits,
            max_bytes=max_bytes,
            allow_private=settings.webhook_allow_private,
        )
    key = source.value
    if source.kind is SourceKind.UPLOAD_ID:
        key = object_key(UUID(source.value))
    with context.storage.local_path(key) as path:
        return probe(path, limits)


def _estimate_s(context: ApiContext, key_id: UUID, audio_s: float | None) -> float | None:
    """Return how long `audio_s` of audio took lately, without the time when nothing was done."""
    if audio_s is None:
        return None
    with context.sessions() as session:
        recent = session.execute(
            select(Job.started_at, Job.finished_at, Job.duration_ms)
            .where(
                Job.key_id == key_id,
                Job.status == JobStatus.COMPLETED,
                Job.reused_from.is_(None),
                Job.duration_ms > 0,
            )
            .order_by(Job.finished_at.desc())
            .limit(RECENT_JOBS)
        ).all()
    if not recent:
        return None
    busy = timedelta()
    until = min(row.started_at for row in recent)
    for row in sorted(recent, key=lambda row: row.started_at):
        busy += max(timedelta(), row.finished_at - max(row.started_at, until))
        until = max(until, row.finished_at)
    done_s: float = sum(row.duration_ms for row in recent) / 1000
    return round(audio_s * busy.total_seconds() / done_s, 1)
