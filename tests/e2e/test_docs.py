"""What the documentation tells people to type does what it says, on one running server."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT, Block, find_blocks
from tests.support.stack import Stack

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
