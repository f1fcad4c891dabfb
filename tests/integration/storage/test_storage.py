"""What every storage promises, on a folder and on an S3 server."""

import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

from core.errors import InvalidInput, MediaGone
from core.storage import Storage
from core.storage.base import BLOCK_BYTES

MIB = 1 << 20


def blocks(num_bytes: int) -> Iterator[bytes]:
    """Yield `num_bytes` in awkward pieces; every 64 bits differ from the others."""
    position = 0
    while position < num_bytes:
        size = min(777_777, num_bytes - position)
        yield pattern(position, size)
        position += size


def pattern(start: int, num_bytes: int) -> bytes:
    """Return bytes `start` … of an endless sequence of numbers."""
    first = start // 8
    whole = np.arange(first, (start + num_bytes) // 8 + 1, dtype=">u8").tobytes()
    return whole[start - first * 8 :][:num_bytes]


def write(storage: Storage, key: str, num_bytes: int) -> None:
    with storage.writer(key) as writer:
        for block in blocks(num_bytes):
            writer.write(block)
        assert writer.num_bytes == num_bytes


@pytest.mark.parametrize("num_bytes", [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 21 * MIB])
def test_what_is_written_in_pieces_is_read_whole(storage: Storage, num_bytes: int) -> None:
    write(storage, "a/object", num_bytes)

    assert storage.stat("a/object").size_bytes == num_bytes
    assert storage.read("a/object") == b"".join(blocks(num_bytes))


def test_a_block_larger_than_many_parts_is_written(storage: Storage) -> None:
    data = pattern(0, 20 * MIB)

    storage.put("big", data)

    assert storage.read("big") == data


def test_a_writer_needs_no_more_memory_for_a_large_object(storage: Storage) -> None:
    block = pattern(0, MIB)
    storage.put("warm", block)  # imports and pools are not what is measured
    tracemalloc.start()
    try:
        with storage.writer("large") as writer:
            for _ in range(96):
                writer.write(block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert storage.stat("large").size_bytes == 96 * MIB
    assert peak < 40 * MIB


def test_reading_in_blocks_needs_no_more_memory_for_a_large_object(storage: Storage) -> None:
    write(storage, "large", 48 * MIB)
    position = 0
    tracemalloc.start()
    try:
        for block in storage.chunks("large"):
            assert 0 < len(block) <= BLOCK_BYTES
            position += len(block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert position == 48 * MIB
    assert peak < 8 * MIB


@pytest.mark.parametrize("num_bytes", [1000, 20 * MIB])
def test_an_aborted_upload_leaves_nothing(storage: Storage, num_bytes: int) -> None:
    with pytest.raises(ZeroDivisionError), storage.writer("half") as writer:
        for block in blocks(num_bytes):
            writer.write(block)
        raise ZeroDivisionError

    with pytest.raises(MediaGone):
        storage.stat("half")
    assert list(storage.list("")) == []


def test_an_aborted_upload_leaves_the_object_that_was_there(storage: Storage) -> None:
    storage.put("kept", b"before")

    with pytest.raises(KeyboardInterrupt), storage.writer("kept") as writer:
        writer.write(b"after")
        raise KeyboardInterrupt

    assert storage.read("kept") == b"before"


def test_readers_see_nothing_before_an_upload_is_complete(storage: Storage) -> None:
    with storage.writer("slow") as writer:
        for block in blocks(20 * MIB):
            writer.write(block)
        with pytest.raises(MediaGone):
            storage.read("slow")
        assert list(storage.list("")) == []

    assert storage.stat("slow").size_bytes == 20 * MIB


@pytest.mark.parametrize(
    ("start", "num_bytes"),
    [(0, 1), (0, 100), (5, 0), (7, 993), (7, 5000), (999, 1), (1000, 1), (5000, 1), (5000, 0)],
)
def test_ranges_are_exact_and_end_with_the_object(
    storage: Storage, start: int, num_bytes: int
) -> None:
    data = pattern(0, 1000)
    storage.put("object", data)

    assert storage.read("object", start=start, num_bytes=num_bytes) == data[start:][:num_bytes]
    assert storage.read("object", start=start) == data[start:]


def test_a_range_of_an_empty_object_is_empty(storage: Storage) -> None:
    storage.put("empty", b"")

    assert storage.read("empty", start=0, num_bytes=10) == b""


def test_a_range_of_a_large_object_comes_in_blocks(storage: Storage) -> None:
    write(storage, "large", 10 * MIB)

    found = list(storage.chunks("large", start=3 * MIB + 1, num_bytes=4 * MIB))

    assert b"".join(found) == pattern(3 * MIB + 1, 4 * MIB)
    assert max(map(len, found)) <= BLOCK_BYTES


def test_writing_again_replaces_the_object(storage: Storage) -> None:
    storage.put("object", b"a longer first version")
    storage.put("object", b"second")

    assert storage.read("object") == b"second"
    assert [found.size_bytes for found in storage.list("object")] == [6]


def test_a_listing_is_complete_ordered_and_begins_with_its_prefix(storage: Storage) -> None:
    keys = ["a/1", "a/2/x", "a-b/1", "a.txt", "a0", "ab/c", "b", "a/10", "ä/ß 1"]
    for key in keys:
        storage.put(key, key.encode())

    def listed(prefix: str) -> list[str]:
        return [found.key for found in storage.list(prefix)]

    assert listed("") == sorted(keys)
    assert listed("a/") == ["a/1", "a/10", "a/2/x"]
    assert listed("a/1") == ["a/1", "a/10"]
    assert listed("a/2") == ["a/2/x"]
    assert listed("a/2/x/y") == []
    assert listed("nothing/here") == []
    assert listed("ä/") == ["ä/ß 1"]


def test_a_listing_tells_size_and_time(storage: Storage) -> None:
    storage.put("object", b"12345")

    [found] = storage.list("")

    assert found.size_bytes == 5
    assert abs(datetime.now(UTC) - found.modified_at) < timedelta(minutes=1)
    stat = storage.stat("object")
    assert (stat.key, stat.size_bytes) == (found.key, found.size_bytes)
    # S3 rounds the two to seconds in different ways.
    assert abs(stat.modified_at - found.modified_at) <= timedelta(seconds=1)


def test_what_is_deleted_is_gone_and_deleting_twice_is_harmless(storage: Storage) -> None:
    storage.put("folder/object", b"x")
    storage.put("folder2/object", b"x")

    storage.delete("folder/object")
    storage.delete("folder/object")
    storage.delete("never/was")

    assert [found.key for found in storage.list("")] == ["folder2/object"]


@pytest.mark.parametrize("key", ["missing", "folder/missing", "object/below", "folder"])
def test_reading_what_is_not_there_says_media_gone(storage: Storage, key: str) -> None:
    storage.put("object", b"x")
    storage.put("folder/object", b"x")

    with pytest.raises(MediaGone):
        storage.stat(key)
    with pytest.raises(MediaGone):
        storage.read(key)
    with pytest.raises(MediaGone):
        storage.read(key, start=1, num_bytes=0)
    with pytest.raises(MediaGone):
        next(storage.chunks(key, start=1, num_bytes=1))
    with pytest.raises(MediaGone), storage.local_path(key):
        pytest.fail("a path of nothing")


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", "./a", ".incoming/x", "a\0b"]
)
def test_a_key_that_leads_elsewhere_is_refused(storage: Storage, key: str) -> None:
    for attempt in (
        lambda: storage.read(key),
        lambda: storage.put(key, b"x"),
        lambda: storage.delete(key),
        lambda: storage.stat(key),
        lambda: storage.presign_get(key, expires_s=60),
    ):
        with pytest.raises(InvalidInput):
            _ = attempt() or pytest.fail("accepted")


@pytest.mark.parametrize("prefix", ["/", "../", "a/../b", "a//", "."])
def test_a_prefix_that_leads_elsewhere_is_refused(storage: Storage, prefix: str) -> None:
    with pytest.raises(InvalidInput):
        list(storage.list(prefix))


def test_a_local_path_is_a_seekable_file_with_the_objects_suffix(storage: Storage) -> None:
    write(storage, "media/talk.m4a", 20 * MIB)

    with storage.local_path("media/talk.m4a") as path:
        assert path.suffix == ".m4a"
        with path.open("rb") as handle:
            handle.seek(13 * MIB)
            assert handle.read(100) == pattern(13 * MIB, 100)
        assert path.stat().st_size == 20 * MIB

    assert storage.stat("media/talk.m4a").size_bytes == 20 * MIB


def test_many_threads_share_one_storage(storage: Storage) -> None:
    start = threading.Barrier(8)

    def work(number: int) -> bool:
        start.wait()
        data = pattern(number * 1000, 100_000)
        for turn in range(10):
            key = f"shared/{number}/{turn}"
            storage.put(key, data)
            if storage.read(key) != data:
                return False
            if turn % 2:
                storage.delete(key)  # empties folders beside writers that want them
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))

    left = [found.key for found in storage.list("shared/")]
    assert len(left) == 8 * 5
    assert all(before < after for before, after in pairwise(left))


def test_writers_of_one_key_never_mix(storage: Storage) -> None:
    versions = [bytes([number]) * 300_000 for number in range(8)]

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(storage.put, "contended", version) for version in versions]
        while not all(write.done() for write in writing):
            try:
                assert storage.read("contended") in versions
            except MediaGone:
                continue  # nobody has finished yet
        for write_ in writing:
            write_.result()

    assert storage.read("contended") in versions
