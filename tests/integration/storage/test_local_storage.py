import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.errors import StorageUnavailable
from core.storage import Storage, open_storage

_WRITE_AND_WAIT = """
import sys, time
from core.storage import open_storage
with open_storage(sys.argv[1]).writer("half") as writer:
    writer.write(b"x" * 1000)
    print("written", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "with space" / "störage"


@pytest.fixture
def local(root: Path) -> Storage:
    return open_storage(root.as_uri())


def test_a_folder_that_becomes_empty_is_removed(local: Storage, root: Path) -> None:
    local.put("a/b/c/one", b"x")
    local.put("a/two", b"x")

    local.delete("a/b/c/one")
    assert sorted(found.name for found in root.iterdir()) == [".incoming", "a"]
    assert [found.name for found in (root / "a").iterdir()] == ["two"]

    local.delete("a/two")
    assert [found.name for found in root.iterdir()] == [".incoming"]


def test_what_a_killed_writer_left_is_removed_and_a_living_ones_is_not(
    local: Storage, root: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITE_AND_WAIT, root.as_uri()], stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
            [left] = (root / ".incoming").iterdir()
            long_ago = time.time() - 3600
            os.utime(left, (long_ago, long_ago))

            assert local.remove_leftovers() == 0  # it may be a slow upload
        finally:
            writer.send_signal(signal.SIGKILL)

    assert local.remove_leftovers() == 1
    assert list((root / ".incoming").iterdir()) == []


def test_opening_removes_leftovers_but_not_what_may_not_be_locked_yet(
    local: Storage, root: Path
) -> None:
    old = root / ".incoming" / "old"
    young = root / ".incoming" / "young"
    for path in (old, young):
        path.write_bytes(b"x")
    long_ago = time.time() - 3600
    os.utime(old, (long_ago, long_ago))

    open_storage(root.as_uri())

    assert [found.name for found in (root / ".incoming").iterdir()] == ["young"]


def test_on_an_unmounted_disk_nothing_is_gone_for_good(local: Storage, root: Path) -> None:
    local.put("object", b"x")
    shutil.rmtree(root)
    root.mkdir()  # what a mount point looks like without its disk

    with pytest.raises(StorageUnavailable):
        local.stat("object")
    with pytest.raises(StorageUnavailable):
        list(local.list(""))
    with pytest.raises(StorageUnavailable):
        local.put("object", b"x")
    assert list(root.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported_as_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StorageUnavailable):
        open_storage((tmp_path / "file" / "below").as_uri())


def test_deleting_beside_a_writer_never_takes_its_folder_away(local: Storage) -> None:
    def churn(number: int) -> None:
        for _ in range(200):
            local.put(f"deep/er/folder/{number}", b"x")
            local.delete(f"deep/er/folder/{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))

    assert list(local.list("")) == []


def test_symbolic_links_to_folders_are_not_listed_for_ever(local: Storage, root: Path) -> None:
    local.put("folder/object", b"x")
    (root / "folder" / "loop").symlink_to(root, target_is_directory=True)

    assert "folder/object" in [found.key for found in local.list("")]
    assert len(list(local.list(""))) < 5


@pytest.mark.parametrize(
    "url", ["", "file://", "file:///", "file://elsewhere/x", "s3://", "http://x/y", "/plain/path"]
)
def test_a_url_that_names_no_storage_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not a storage URL"):
        open_storage(url)
