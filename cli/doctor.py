"""`scriptorium doctor`: every setting and where it comes from, and whether what is needed works."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from cli import data_dir, embedded_redis
from cli.checkpoints import find_local, is_here
from cli.config import load_settings
from cli.database import open_database
from cli.tables import print_table
from core.checkpoints import aligner_model, served_models
from core.errors import ScriptoriumError, ServiceUnavailable
from core.ids import new_id
from core.settings import Settings

_TORCH_TIMEOUT_S = 120
_TORCH = """
import sys, torch
from adapters.device import resolve_device
from core.errors import DeviceMissing
try:
    device = resolve_device(sys.argv[1])
except DeviceMissing as exc:
    sys.exit(str(exc))
gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
print(f"torch {torch.__version__}, {', '.join(gpus) or 'no CUDA GPU'}; computes on {device}")
"""


class Unneeded(Exception):
    """The check says nothing about whether the service works, but a person may want to know."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is needed.

    Attributes:
        run: Returns what was found; raises `ScriptoriumError` or `OSError` if it is broken.
    """

    name: str
    run: Callable[[Settings], str]


def run() -> int:
    """Print settings and checks; returns 1 if something needed is broken."""
    settings = load_settings()
    print_table(("setting", "value", "source"), [*_settings_rows(settings)])
    print()
    rows, is_broken = [], False
    for check in CHECKS:
        verdict, found = _try(check, settings)
        is_broken |= verdict == "BROKEN"
        rows.append((check.name, verdict, found))
    print_table(("check", "verdict", "found"), rows)
    return int(is_broken)


def _settings_rows(settings: Settings) -> list[tuple[str, str, str]]:
    return [
        (
            f"SCRIPTORIUM_{name.upper()}",
            mask(getattr(settings, name)),
            "environment" if name in settings.model_fields_set else "default",
        )
        for name in Settings.model_fields
    ]


def mask(value: object) -> str:
    """Return a setting as text; passwords in URLs become `***`."""
    if value is None:
        return "-"
    is_secret = isinstance(value, SecretStr)
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    if is_secret and "://" not in text:
        return "***"
    parts = urlsplit(text)
    if parts.password is not None or (is_secret and parts.query):
        host = parts.netloc.rpartition("@")[2]
        user = f"{parts.username}:***@" if parts.password is not None else ""
        query = "***" if is_secret and parts.query else parts.query
        return urlunsplit((parts.scheme, f"{user}{host}", parts.path, query, ""))
    return text


def _try(check: Check, settings: Settings) -> tuple[str, str]:
    try:
        return "ok", check.run(settings)
    except Unneeded as exc:
        return "note", str(exc)
    except (ScriptoriumError, OSError, ValueError) as exc:
        return "BROKEN", str(exc).splitlines()[0]


def _check_python(_settings: Settings) -> str:
    return f"{sys.version.split()[0]}, {sys.executable}"


def _check_torch(settings: Settings) -> str:
    run = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-c", _TORCH, settings.device],
        capture_output=True,
        text=True,
        timeout=_TORCH_TIMEOUT_S,
        check=False,
    )
    if run.returncode != 0:
        raise ServiceUnavailable((run.stderr.strip().splitlines() or ["torch does not load"])[-1])
    return run.stdout.strip()


def _check_data_dir(settings: Settings) -> str:
    data_dir.make_private(settings.data_path)
    probe = settings.data_path / f".probe-{new_id()}"
    probe.write_bytes(b"probe")
    probe.unlink()
    owner = " (in use)" if data_dir.is_owned(settings.data_path) else ""
    return f"{settings.data_path}{owner}"


def _check_disk(settings: Settings) -> str:
    free = shutil.disk_usage(settings.data_path).free
    found = f"{free / 1024**3:.1f} GiB free"
    if free < settings.min_free_bytes:
        raise ServiceUnavailable(f"{found}: uploads are refused")
    return found


def _check_database(settings: Settings) -> str:
    from sqlalchemy import text

    if settings.database_url is None and not (settings.data_path / "scriptorium.db").exists():
        raise Unneeded("SQLite; made at the first start")
    with open_database(settings) as sessions, sessions() as session:
        session.execute(text("SELECT 1"))
        kind = session.get_bind().dialect.name
    return f"{kind} answers"


def _check_redis(settings: Settings) -> str:
    if embedded_redis.answers(settings.redis):
        return "answers"
    if settings.redis_url is not None:
        raise ServiceUnavailable(f"{mask(settings.redis_url)} does not answer")
    return f"bundled, started by `up`: {embedded_redis.find_binary()}"


def _check_storage(settings: Settings) -> str:
    from core.storage import open_storage

    storage = open_storage(settings.storage, s3_endpoint_url=settings.s3_endpoint_url)
    key = f"doctor/{new_id()}"
    storage.put(key, b"probe")
    try:
        if storage.read(key) != b"probe":
            raise ServiceUnavailable("what was written reads differently")
    finally:
        storage.delete(key)
    return f"{mask(settings.storage)}: write, read, delete"


def _check_checkpoints(settings: Settings) -> str:
    found, missing = [], []
    for model in served_models(settings):
        local = find_local(model, settings.data_path)
        if local is None:
            missing.append(model.name)
        else:
            found.append(f"{local.name} ({local.adapter}, revision {local.revision})")
    aligner = aligner_model(settings)
    if aligner is not None:
        (found if is_here(aligner, settings.data_path) else missing).append(aligner.name)
    if missing:
        raise ServiceUnavailable(
            f"{', '.join(missing)} not here or damaged; run: scriptorium models fetch"
        )
    return ", ".join(found)


def _check_port(_settings: Settings) -> str:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 8000))
        except OSError as exc:
            raise Unneeded("8000 is in use; `up` needs another --port, or is running") from exc
    return "8000 is free for `up`"


CHECKS = (
    Check("python", _check_python),
    Check("torch", _check_torch),
    Check("data directory", _check_data_dir),
    Check("disk", _check_disk),
    Check("database", _check_database),
    Check("redis", _check_redis),
    Check("storage", _check_storage),
    Check("checkpoints", _check_checkpoints),
    Check("port", _check_port),
)
