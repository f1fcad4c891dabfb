"""What Prometheus may scrape. Queue depths come from the database: the rows are the truth."""

import time
from collections.abc import Iterator
from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy import func, select
from sqlalchemy.orm import Session, sessionmaker

from core.db import read_session
from models import Job, JobStatus, Window, WindowStatus

MAX_AGE = timedelta(seconds=10)
"""Scrapes within this time share one look at the database."""

_WAITING = (WindowStatus.PENDING, WindowStatus.RUNNING)


class Metrics:
    """The metrics of one API process, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "scriptorium_http_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "scriptorium_http_request_seconds",
            "Time from the first byte of a request to the last of its response.",
            ["method", "route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600),
            registry=self._registry,
        )
        self.uploaded_bytes = Counter(
            "scriptorium_uploaded_bytes", "Bytes of accepted media.", registry=self._registry
        )
        self.listeners = Gauge(
            "scriptorium_event_listeners",
            "Connections that follow a job's events.",
            registry=self._registry,
        )
        self.live_sessions = Gauge(
            "scriptorium_live_sessions",
            "Live sessions that are open.",
            registry=self._registry,
        )
        self.live_ended = Counter(
            "scriptorium_live_ended",
            "Live sessions that ended, by reason; `client` is a client that left.",
            ["reason"],
            registry=self._registry,
        )
        self.live_audio_s = Counter(
            "scriptorium_live_audio_seconds",
            "Audio that live sessions sent.",
            registry=self._registry,
        )
        self._jobs = Gauge(
            "scriptorium_jobs", "Jobs by status.", ["status"], registry=self._registry
        )
        self._windows = Gauge(
            "scriptorium_windows",
            "Unfinished windows by adapter and status.",
            ["adapter", "status"],
            registry=self._registry,
        )
        self._hours = Gauge(
            "scriptorium_transcribed_hours",
            "Audio hours of completed jobs that are still kept.",
            registry=self._registry,
        )
        self._oldest = Gauge(
            "scriptorium_oldest_queued_job_seconds",
            "How long the longest waiting queued job waits.",
            registry=self._registry,
        )
        self._read_at = float("-inf")

    def observe_request(self, method: str, route: str, status: int, elapsed_s: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, str(status)).inc()
        self._latency.labels(method, route).observe(elapsed_s)

    def render(self, sessions: sessionmaker[Session]) -> bytes:
        """Return the exposition text, with depths no older than `MAX_AGE`."""
        if time.monotonic() - self._read_at >= MAX_AGE.total_seconds():
            with read_session(sessions) as session:
                self._read_depths(session)
            self._read_at = time.monotonic()
        return generate_latest(self._registry)

    def _read_depths(self, session: Session) -> None:
        jobs = dict.fromkeys(JobStatus, 0) | {
            JobStatus(status): count
            for status, count in session.execute(
                select(Job.status, func.count()).group_by(Job.status)
            )
        }
        for status, count in jobs.items():
            self._jobs.labels(str(status)).set(count)
        self._windows.clear()
        for adapter, state, count in _waiting_windows(session):
            self._windows.labels(adapter, str(state)).set(count)
        transcribed_ms = session.scalar(
            select(func.sum(Job.duration_ms)).where(Job.status == JobStatus.COMPLETED)
        )
        self._hours.set((transcribed_ms or 0) / 3_600_000)
        oldest = session.scalar(
            select(func.min(Job.created_at)).where(Job.status == JobStatus.QUEUED)
        )
        self._oldest.set(max(0.0, time.time() - oldest.timestamp()) if oldest else 0.0)


def _waiting_windows(session: Session) -> Iterator[tuple[str, WindowStatus, int]]:
    statement = (
        select(Window.adapter, Window.status, func.count())
        .where(Window.status.in_(_WAITING))
        .group_by(Window.adapter, Window.status)
    )
    for adapter, status, count in session.execute(statement):
        yield adapter, WindowStatus(status), count
