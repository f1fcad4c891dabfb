import os
import subprocess
import sys

import pytest

from cli.data_dir import RunningStack, announced, find_running, own
from core.errors import AlreadyRunning


def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path):
    stack = RunningStack(pid=os.getpid(), kind="up", url="http://127.0.0.1:8000", revisions={})
    with (
        own(tmp_path, kind="up"),
        announced(tmp_path, stack),
        pytest.raises(AlreadyRunning) as refused,
        own(tmp_path, kind="up"),
    ):
        pass
    message = str(refused.value)
    assert f"`scriptorium up` (pid {os.getpid()})" in message
    assert "http://127.0.0.1:8000" in message


def test_the_directory_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with own(tmp_path, kind="up"):
            assert (tmp_path / "lock").exists()


def test_a_lock_left_by_a_killed_process_is_harmless(tmp_path):
    program = (
        "import os, signal; from pathlib import Path; from cli.data_dir import own\n"
        f"with own(Path({str(tmp_path)!r}), kind='up'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert (tmp_path / "lock").read_text() != ""
    with own(tmp_path, kind="up"):
        pass


def test_a_child_process_does_not_inherit_the_lock(tmp_path):
    with own(tmp_path, kind="up"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with own(tmp_path, kind="up"):
            pass
    finally:
        child.communicate(b"\n")


def test_a_running_stack_is_found_while_it_is_announced(tmp_path):
    stack = RunningStack(pid=1, kind="up", url="http://127.0.0.1:8000", revisions={"m": "1"})
    assert find_running(tmp_path) is None
    with own(tmp_path, kind="up"):
        assert find_running(tmp_path) is None
        with announced(tmp_path, stack):
            assert find_running(tmp_path) == stack
        assert find_running(tmp_path) is None


def test_an_announcement_without_an_owner_does_not_count(tmp_path):
    with own(tmp_path, kind="up"):
        pass
    (tmp_path / "up.json").write_text(
        '{"pid": 1, "kind": "up", "url": "http://127.0.0.1:1", "revisions": {}}'
    )
    assert find_running(tmp_path) is None


def test_the_data_directory_is_private(tmp_path):
    with own(tmp_path / "new", kind="up"):
        assert (tmp_path / "new").stat().st_mode & 0o077 == 0
