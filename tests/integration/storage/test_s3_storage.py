import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import boto3
import httpx
import pytest
from botocore.config import Config

import core.storage.s3
from core.errors import InvalidInput, MediaGone, StorageUnavailable
from core.storage import Storage, open_storage
from tests.support.processes import free_port

if TYPE_CHECKING:
    from tests.conftest import SettingsFactory
    from tests.support.swift import SwiftServer

MIB = 1 << 20


@pytest.fixture
def s3(s3_settings: "SettingsFactory") -> Storage:
    settings = s3_settings()
    return open_storage(settings.storage, s3_endpoint_url=settings.s3_endpoint_url)


@pytest.fixture
def unfinished(s3_url: str, s3_server: "SwiftServer") -> "Unfinished":
    return Unfinished(s3_url, s3_server)


class Unfinished:
    """Looks at what the protocol under test hides: multipart uploads in progress."""

    def __init__(self, url: str, server: "SwiftServer") -> None:
        self.bucket, _, self.prefix = url.removeprefix("s3://").partition("/")
        self.client = boto3.session.Session().client(
            "s3",
            endpoint_url=server.endpoint_url,
            config=Config(s3={"addressing_style": "path"}),
        )

    def count(self) -> int:
        answer = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix)
        return len(answer.get("Uploads", ()))

    def begin(self, key: str) -> None:
        self.client.create_multipart_upload(Bucket=self.bucket, Key=f"{self.prefix}/{key}")


def test_parts_travel_while_more_is_written_and_an_abort_drops_them(
    s3: Storage, unfinished: Unfinished
) -> None:
    with pytest.raises(ZeroDivisionError), s3.writer("half") as writer:
        writer.write(b"x" * (20 * MIB))
        assert unfinished.count() == 1
        raise ZeroDivisionError

    assert unfinished.count() == 0


def test_an_abort_waits_for_the_part_that_travels(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = s3._client  # type: ignore[attr-defined]
    calls: list[str] = []

    def slow_part(**request: Any) -> Any:
        answer = upload_part(**request)
        time.sleep(0.3)
        calls.append("part")
        return answer

    def note_abort(**request: Any) -> Any:
        calls.append("abort")
        return abort(**request)

    upload_part, abort = client.upload_part, client.abort_multipart_upload
    monkeypatch.setattr(client, "upload_part", slow_part)
    monkeypatch.setattr(client, "abort_multipart_upload", note_abort)

    with pytest.raises(ZeroDivisionError), s3.writer("half") as writer:
        writer.write(b"x" * (9 * MIB))
        raise ZeroDivisionError

    # S3 keeps, for ever and for money, a part that arrives after its upload was aborted.
    assert calls == ["part", "abort"]


def test_an_upload_that_cannot_be_completed_is_aborted(s3: Storage, unfinished: Unfinished) -> None:
    with pytest.raises(StorageUnavailable), s3.writer("half") as writer:
        writer.write(b"x" * (20 * MIB))
        [upload] = unfinished.client.list_multipart_uploads(
            Bucket=unfinished.bucket, Prefix=unfinished.prefix
        )["Uploads"]
        unfinished.client.abort_multipart_upload(
            Bucket=unfinished.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
        )

    assert unfinished.count() == 0
    with pytest.raises(MediaGone):
        s3.stat("half")


def test_uploads_of_dead_writers_are_dropped_after_a_day(
    s3: Storage, unfinished: Unfinished, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished.begin("left")

    assert s3.remove_leftovers() == 0
    assert unfinished.count() == 1

    monkeypatch.setattr(core.storage.s3, "_STALE_UPLOAD", -core.storage.s3._STALE_UPLOAD)
    assert s3.remove_leftovers() == 1
    assert unfinished.count() == 0


def test_a_presigned_url_reads_without_credentials_and_names_the_file(s3: Storage) -> None:
    s3.put("media/1", b"sound")
    filename = 'Grüße "日本" 1;2\r\n.mp3'

    url = s3.presign_get("media/1", expires_s=60, filename=filename)
    assert url is not None
    answer = httpx.get(url)

    assert (answer.status_code, answer.content) == (200, b"sound")
    disposition = answer.headers["content-disposition"]
    assert disposition == f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
    part = httpx.get(url, headers={"Range": "bytes=1-2"})
    assert (part.status_code, part.content) == (206, b"ou")


def test_a_presigned_url_expires_and_cannot_be_changed(s3: Storage) -> None:
    s3.put("mine", b"1")
    s3.put("other", b"2")
    url = s3.presign_get("mine", expires_s=1)
    assert url is not None
    assert httpx.get(url).status_code == 200

    assert httpx.get(url.replace("/mine?", "/other?")).status_code == 403
    deadline = time.monotonic() + 10
    while httpx.get(url).status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert httpx.get(url).status_code == 403


def test_a_listing_goes_on_after_a_thousand_objects(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = s3._client.list_objects_v2  # type: ignore[attr-defined]
    monkeypatch.setattr(
        s3._client,  # type: ignore[attr-defined]
        "list_objects_v2",
        lambda **request: ask(**request, MaxKeys=3),
    )
    keys = [f"many/{number:02}" for number in range(10)]
    for key in keys:
        s3.put(key, b"x")

    assert [found.key for found in s3.list("many/")] == keys


def test_a_download_is_removed_at_the_end_and_when_it_fails(s3: Storage) -> None:
    s3.put("object", b"x")
    with s3.local_path("object") as path:
        assert path.read_bytes() == b"x"
        folder = path.parent
        assert folder.stat().st_mode & 0o077 == 0  # nobody else may read recordings
    assert not path.exists()

    with pytest.raises(ZeroDivisionError), s3.local_path("object") as path:
        raise ZeroDivisionError
    assert not path.exists()


def test_a_download_that_would_fill_the_disk_is_not_begun(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("object", b"x" * 1000)
    free = core.storage.s3._MIN_FREE_BYTES + 999
    monkeypatch.setattr(
        core.storage.s3.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free})
    )

    with pytest.raises(StorageUnavailable, match="1000 bytes to fetch"), s3.local_path("object"):
        pytest.fail("no room")


def test_objects_outside_the_prefix_are_out_of_sight(
    s3: Storage, s3_url: str, s3_server: "SwiftServer"
) -> None:
    neighbour = open_storage(f"{s3_url}-neighbour", s3_endpoint_url=s3_server.endpoint_url)
    neighbour.put("object", b"theirs")

    assert list(s3.list("")) == []
    with pytest.raises(MediaGone):
        s3.stat("object")


def test_a_missing_bucket_is_not_a_missing_recording(s3_url: str, s3_server: "SwiftServer") -> None:
    nowhere = open_storage("s3://no-such-bucket/x", s3_endpoint_url=s3_server.endpoint_url)

    for attempt in (
        lambda: nowhere.stat("object"),
        lambda: nowhere.read("object"),
        lambda: nowhere.put("object", b"x"),
        lambda: list(nowhere.list("")),
    ):
        with pytest.raises(StorageUnavailable):
            attempt()


def test_a_refused_key_pair_is_not_a_missing_recording(
    s3_url: str, s3_server: "SwiftServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    stranger = open_storage(s3_url, s3_endpoint_url=s3_server.endpoint_url)

    with pytest.raises(StorageUnavailable):
        stranger.read("object")
    with pytest.raises(StorageUnavailable):
        stranger.stat("object")


def test_without_credentials_the_storage_is_unavailable(
    s3_url: str, s3_server: "SwiftServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    anonymous = open_storage(s3_url, s3_endpoint_url=s3_server.endpoint_url)

    with pytest.raises(StorageUnavailable):
        anonymous.read("object")


@pytest.fixture(params=["refuses", "is silent"])
def dead_endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that is down, and one that accepts connections and never answers."""
    if request.param == "refuses":
        yield f"http://127.0.0.1:{free_port()}"
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_dead_server_is_reported_within_seconds(
    s3_url: str, dead_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.storage.s3, "_READ_TIMEOUT_S", 0.3)
    dead = open_storage(s3_url, s3_endpoint_url=dead_endpoint)  # opening asks nothing

    for attempt in (
        lambda: dead.read("object"),
        lambda: dead.stat("object"),
        lambda: dead.put("object", b"x"),
        lambda: dead.delete("object"),
        lambda: list(dead.list("")),
        lambda: dead.local_path("object").__enter__(),
        dead.remove_leftovers,
    ):
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable):
            attempt()
        assert time.monotonic() - begun < 10


def test_a_server_that_dies_during_an_upload_is_reported(
    s3: Storage, s3_url: str, dead_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.storage.s3, "_READ_TIMEOUT_S", 1)
    dead = open_storage(s3_url, s3_endpoint_url=dead_endpoint)

    with pytest.raises(StorageUnavailable), dead.writer("object") as writer:
        while True:  # the failure surfaces while writing, long before memory is full
            assert writer.num_bytes < 64 * MIB
            writer.write(b"x" * MIB)


def test_a_prefix_with_tricks_is_refused() -> None:
    with pytest.raises(InvalidInput):
        open_storage("s3://bucket/a/../b")


def test_downloads_of_killed_processes_are_removed(s3: Storage) -> None:
    s3.put("object", b"x")
    with s3.local_path("object") as path:
        left = path.parent / "left.mp3"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))

    with s3.local_path("object"):
        assert not left.exists()


def test_a_folder_of_downloads_that_someone_else_made_is_not_used(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("object", b"x")
    monkeypatch.setattr(core.storage.s3.os, "geteuid", lambda: 12345)

    with pytest.raises(StorageUnavailable, match="someone else"), s3.local_path("object"):
        pytest.fail("used")
