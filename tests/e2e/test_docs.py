"""What the documentation tells people to type does what it says, on one running server."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import KENNEDY
from tests.support.pages import ROOT, Block, find_block, find_blocks
from tests.support.processes import Process, free_port, is_listening, running, wait_for
from tests.support.stack import JOB_S, START_S, Stack, run_command, scriptorium
from tests.support.valkey import ValkeyServer

if shutil.which("curl") is None and "CI" not in os.environ:
    pytest.skip("curl is not installed", allow_module_level=True)

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_S = 300
ADDRESS = "http://127.0.0.1:8000"
"""Where the documentation's server answers; the tests' has another port."""

_MARK = "==== block"


def runnable(page: Path) -> list[Block]:
    return [block for block in find_blocks(page) if block.info.endswith(" run")]


def script(blocks: list[Block], url: str) -> str:
    """Return a page's blocks as one shell script, so that variables live on."""
    parts = ["set -euo pipefail"]
    for block in blocks:
        code = block.code.replace(ADDRESS, url)
        if block.language == "python":
            code = f"python - <<'END_OF_BLOCK'\n{code}END_OF_BLOCK\n"
        elif block.language != "sh":
            raise ValueError(f"nobody knows how to run {block.info!r}")
        parts.append(f"echo '{_MARK}'\n{code}")
    return "\n".join(parts)


@pytest.mark.parametrize("stack", ["embedded"], indirect=True)
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda p: p.stem)
def test_the_commands_of_a_page_do_what_it_says(page: Path, stack: Stack, tmp_path: Path) -> None:
    for name in ("samples", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    blocks = runnable(page)
    env = dict(stack.env) | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{stack.env['PATH']}",
        "SCRIPTORIUM_API_KEY": stack.key,
        "SCRIPTORIUM_DATA_DIR": str(stack.data),
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        ["bash", "-c", script(blocks, stack.url)],  # noqa: S607
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
        stdin=subprocess.DEVNULL,
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    outputs = done.stdout.split(f"{_MARK}\n")[1:]
    assert len(outputs) == len(blocks), shown
    for block, output in zip(blocks, outputs, strict=True):
        assert (block.prints or "") in output, f"{block.code}\n{shown}"


def test_the_processes_one_by_one_are_a_service(base_env: dict[str, str], tmp_path: Path) -> None:
    """What deploying.md lists, on another port and with the default checkpoint."""
    port = free_port()
    block = find_block(ROOT / "docs" / "deploying.md", "sh processes")
    migrate, *others = [shlex.split(line) for line in block.splitlines()]
    with ValkeyServer(tmp_path / "valkey") as valkey, ExitStack() as cleanup:
        env = base_env | {
            "SCRIPTORIUM_DATA_DIR": str(tmp_path / "data"),
            "SCRIPTORIUM_REDIS_URL": valkey.url,
        }
        assert run_command(*migrate[1:], env=env).returncode == 0
        made = run_command("keys", "create", "guide", env=env)
        key = re.search(r"sk-\S+", made.stdout)
        assert key is not None, made.stderr
        processes = []
        for number, words in enumerate(others):
            command = scriptorium(*_adapt(words[1:], port=port, model=env["SCRIPTORIUM_MODELS"]))
            log = tmp_path / f"process.{number}"
            processes.append(
                cleanup.enter_context(running(Process(log.name, command, log=log, env=env)))
            )
        assert len(processes) == 5
        client = cleanup.enter_context(
            httpx.Client(
                base_url=f"http://127.0.0.1:{port}",
                headers={"Authorization": f"Bearer {key[0]}"},
                timeout=60,
                trust_env=False,
            )
        )
        wait_for(lambda: is_listening(port), what="the API listens", timeout_s=START_S)
        with KENNEDY.open("rb") as file:
            job = client.post("/v1/jobs", files={"file": file}).raise_for_status().json()
        text = wait_for(
            lambda: _read_text(client, job["id"]), what="the transcript is there", timeout_s=JOB_S
        )
        assert "what your country can do for you" in text
        codes = [process.stop(timeout_s=60, kill_family=False) for process in processes]
        assert set(codes) <= {0, -signal.SIGTERM}  # uvicorn ends, then dies of the signal it got


def _adapt(words: list[str], *, port: int, model: str) -> list[str]:
    """Return a command of the page with this test's port and checkpoint."""
    changed = {"--host": "127.0.0.1", "--port": str(port), "--model": model}
    return [changed.get(before, word) for before, word in zip(["", *words], words, strict=False)]


def _read_text(client: httpx.Client, job_id: str) -> str | None:
    answer = client.get(f"/v1/jobs/{job_id}/transcript", params={"format": "text"})
    return answer.text if answer.is_success else None
