"""The service's processes one by one, as containers run them."""

import os
import socket
from contextlib import suppress
from pathlib import Path

from cli.config import join_models, load_settings
from cli.exposure import check_exposure
from core.settings import limit_spinning

_AUTOGROUP = Path("/proc/self/autogroup")


def run_api(*, host: str, port: int, fd: int | None) -> None:
    """Serve HTTP until a signal comes.

    Args:
        fd: A bound socket inherited from the supervisor, which then also decided who may reach it.
    """
    from api.main import create_app
    from api.server import ApiServer

    settings = load_settings()
    if fd is None:
        check_exposure(host, is_auth_on=settings.auth)
    server = ApiServer(create_app(), host=host, port=port, log_config=None, access_log=False)
    server.run(sockets=None if fd is None else [socket.socket(fileno=fd)])


def run_worker(
    *,
    queues: str | None,
    models: list[str] | None,
    name: str | None,
    concurrency: int | None,
    nice: int,
) -> int:
    """Work until a signal comes; returns the exit code."""
    limit_spinning()
    from workers import run

    if nice:
        _give_way(nice)
    return run.run_worker(
        load_settings(models=join_models(models)),
        queues=queues.split(",") if queues else None,
        name=name,
        concurrency=concurrency,
    )


def _give_way(nice: int) -> None:
    if hasattr(os, "nice"):
        os.nice(nice)
    # Linux weighs sessions, and only within one its processes (`man 7 sched`, autogroups).
    with suppress(OSError):
        _AUTOGROUP.write_text(str(nice))


def run_beat() -> None:
    """Tick until a signal comes."""
    from workers import run

    run.run_beat(load_settings())


def run_migrate(*, is_forgetting: bool) -> None:
    """Bring the database's tables up to date.

    Args:
        is_forgetting: Give up secrets that no key opens, and print what was lost.
    """
    from sqlalchemy.exc import OperationalError

    from cli.database import explain
    from core.errors import ServiceUnavailable
    from migrations.run import migrate, migrate_without

    settings = load_settings()
    try:
        if not is_forgetting:
            migrate(settings)
            return
        losses = migrate_without(settings.database, sealer=settings.sealer)
    except OperationalError as exc:
        raise ServiceUnavailable(explain(exc)) from exc
    for loss in losses:
        print(f"Forgotten: {loss.what}: {loss.count} ({loss.meaning})")
    if not losses:
        print("Every secret opens; nothing was forgotten.")
