"""`scriptorium jobs`: what an operator does to jobs, straight on the database."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from core.errors import InvalidOption, JobNotFound

if TYPE_CHECKING:
    from core.db import UnitOfWork
    from core.events import Publisher
    from core.queues import JobQueue
    from models import Job

app = typer.Typer(help="List, show, cancel and retry jobs.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="JOB_ID")]


@app.command("list")
def list_jobs(
    status: Annotated[
        str | None, typer.Option(help="queued, running, completed, failed or cancelled.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Newest ones only.")] = 50,
) -> None:
    """List jobs of all keys, newest first."""
    from sqlalchemy import select
    from sqlalchemy.orm import joinedload

    from cli.config import load_settings
    from cli.database import open_database
    from cli.tables import print_table
    from models import Job, JobStatus

    statement = select(Job).options(joinedload(Job.media)).order_by(Job.id.desc()).limit(limit)
    if status is not None:
        if status not in set(JobStatus):
            raise InvalidOption(f"--status is one of {', '.join(JobStatus)}.", param="status")
        statement = statement.where(Job.status == status)
    with open_database(load_settings()) as sessions, sessions() as session:
        rows = [
            (
                str(job.id),
                job.status,
                f"{job.windows_done}/{job.windows_total}",
                job.created_at,
                job.finished_at,
                job.error_code,
                job.media.filename,
            )
            for job in session.scalars(statement)
        ]
    print_table(("id", "status", "windows", "created", "finished", "error", "file"), rows)


@app.command()
def show(job_id: JobId) -> None:
    """Print all that is known of a job as JSON."""
    import json

    from cli.config import load_settings
    from cli.database import open_database
    from lifecycle.jobs import get_job

    with open_database(load_settings()) as sessions, sessions() as session:
        job = get_job(session, None, _parse_id(job_id))
        data = {c.key: getattr(job, c.key) for c in type(job).__mapper__.column_attrs}
        data["filename"] = job.media.filename
    print(json.dumps(data, indent=2, default=str, ensure_ascii=False))


@app.command()
def cancel(job_id: JobId) -> None:
    """Cancel a job that has not ended."""
    from datetime import UTC, datetime

    from lifecycle.jobs import cancel_job

    _change(
        job_id,
        lambda uow, _queue, publisher, job: cancel_job(uow, publisher, job, now=datetime.now(UTC)),
    )


@app.command()
def retry(job_id: JobId) -> None:
    """Queue a failed or cancelled job again; windows that are done stay done."""
    from datetime import UTC, datetime

    from lifecycle.jobs import retry_job

    _change(
        job_id,
        lambda uow, queue, publisher, job: retry_job(
            uow, queue, publisher, job, now=datetime.now(UTC)
        ),
    )


def _change(
    job_id: str, change: Callable[["UnitOfWork", "JobQueue", "Publisher", "Job"], "Job"]
) -> None:
    """Apply `change` in one transaction. Workers hear of it if Redis answers, else in time."""
    from cli.config import load_settings
    from cli.database import open_database
    from core.db import unit_of_work
    from core.events import RedisPublisher, connect_redis
    from core.queues import CeleryQueue, make_celery
    from lifecycle.jobs import get_job

    settings = load_settings()
    queue = CeleryQueue(make_celery(settings.redis))
    publisher = RedisPublisher(connect_redis(settings.redis))
    with open_database(settings) as sessions, unit_of_work(sessions) as uow:
        job = change(uow, queue, publisher, get_job(uow.session, None, _parse_id(job_id)))
        print(f"{job.id} is {job.status}")


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as exc:
        raise JobNotFound(f"{text!r} is not a job id.") from exc
