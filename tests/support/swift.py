"""A real OpenStack Swift with its S3 interface: one replica, four processes, loopback ports."""

import contextlib
import getpass
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import botocore.exceptions
from botocore.config import Config

from tests.support.processes import Process, free_port, is_listening, running, wait_for

ACCESS_KEY = "test:tester"
SECRET_KEY = "testing"  # noqa: S105
BUCKET = "scriptorium-tests"
_SERVERS = ("account", "container", "object")
_PIPELINE = (
    "catch_errors gatekeeper healthcheck cache listing_formats bulk s3api tempauth copy slo dlo"
)

_COMMON = """\
[DEFAULT]
swift_dir = {folder}
devices = {folder}/srv
mount_check = false
disable_fallocate = true
fallocate_reserve = 0
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
log_level = WARNING
log_address = {folder}/no-syslog
"""

_FILTERS = {
    "catch_errors": "",
    "gatekeeper": "",
    "healthcheck": "",
    "cache": "memcache_servers = 127.0.0.1:1\nmemcache_max_connections = 1\n",
    "listing_formats": "",
    "bulk": "",
    "s3api": (
        "location = us-east-1\ndns_compliant_bucket_names = true\nmin_segment_size = 5242880\n"
    ),
    "tempauth": f"user_{ACCESS_KEY.replace(':', '_')} = {SECRET_KEY} .admin\n",
    "copy": "",
    "slo": "",
    "dlo": "",
}


@dataclass(frozen=True)
class SwiftServer:
    """Where it answers, and what a client needs in its environment."""

    endpoint_url: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            # Whoever runs the tests may have profiles of their own.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def make_bucket(self) -> None:
        """Make `BUCKET` unless it exists."""
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )
        with contextlib.closing(client):
            client.create_bucket(Bucket=BUCKET)


@contextlib.contextmanager
def swift_server() -> Iterator[SwiftServer]:
    """Serve from a folder of its own until the end."""
    folder = Path(tempfile.mkdtemp(prefix="scriptorium-s3-", dir=_folder_with_xattrs()))
    try:
        ports = {name: free_port() for name in (*_SERVERS, "proxy")}
        _configure(folder, ports)
        with contextlib.ExitStack() as stack:
            processes = {
                name: stack.enter_context(
                    running(
                        Process(
                            f"swift-{name}",
                            [
                                sys.executable,
                                Path(sys.executable).parent / f"swift-{name}-server",
                                folder / f"{name}.conf",
                            ],
                            log=folder / f"{name}.log",
                            env={**os.environ, "PYTHONWARNINGS": "ignore"},
                        )
                    )
                )
                for name in ports
            }
            for name, process in processes.items():
                wait_for(
                    lambda name=name: is_listening(ports[name]),
                    what=f"swift-{name} listens",
                    process=process,
                    timeout_s=60,
                )
            server = SwiftServer(f"http://127.0.0.1:{ports['proxy']}")
            wait_for(
                lambda: _has_bucket(server), what="a bucket is made", process=processes["proxy"]
            )
            yield server
    finally:
        shutil.rmtree(folder)


def _has_bucket(server: SwiftServer) -> bool:
    try:
        server.make_bucket()
    except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError):
        return False
    return True


def _configure(folder: Path, ports: dict[str, int]) -> None:
    (folder / "srv/d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = tests\nswift_hash_path_prefix = tests\n"
        "[storage-policy:0]\nname = default\ndefault = yes\n"
        "[swift-constraints]\nmax_header_size = 32768\n"
    )
    user = getpass.getuser()
    for name in _SERVERS:
        (folder / f"{name}.conf").write_text(
            _COMMON.format(folder=folder, port=ports[name], user=user)
            + f"[pipeline:main]\npipeline = {name}-server\n"
            f"[app:{name}-server]\nuse = egg:swift#{name}\n"
        )
    subprocess.run(
        [
            *(sys.executable, "-m", "tests.support.swift_rings", str(folder)),
            *(f"{name}={ports[name]}" for name in _SERVERS),
        ],
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    filters = "".join(
        f"[filter:{name}]\nuse = egg:swift#{'memcache' if name == 'cache' else name}\n{options}"
        for name, options in _FILTERS.items()
    )
    (folder / "proxy.conf").write_text(
        _COMMON.format(folder=folder, port=ports["proxy"], user=user)
        + f"[pipeline:main]\npipeline = {_PIPELINE} proxy-server\n"
        "[app:proxy-server]\nuse = egg:swift#proxy\n"
        "account_autocreate = true\nallow_account_management = true\n" + filters
    )


def _folder_with_xattrs() -> Path:
    """Return a folder for temporary files that keeps user xattrs: Swift's metadata."""
    candidates = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.home(), Path.cwd()]  # noqa: S108
    for folder in candidates:
        with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder) as probe:
            os.setxattr(probe.name, "user.scriptorium", b"x" * 1000)
            return folder
    raise AssertionError(
        f"no user xattrs in any of {candidates}; set TMPDIR to a file system with them"
    )
