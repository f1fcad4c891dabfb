"""Uploads and batches over HTTP, as `scriptorium transcribe --server` uses them."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpx

from cli.client import MEDIA_CHANGED, TIMEOUT, Client, NotNow, Refused, explain, readable_name
from cli.waiting import Stopped
from core.errors import Forbidden, Unauthenticated

_BLOCK_BYTES = 1 << 18
_ITEMS_A_PAGE = 1000


class BulkClient:
    """What `Client` leaves out; raises the same errors, and may be used from several threads."""

    def __init__(self, client: Client) -> None:
        self.client = client
        # Without our key: the URLs of an S3 server carry a signature of their own.
        self._storage = httpx.Client(timeout=TIMEOUT)

    def close(self) -> None:
        """Close the connections to the server's storage."""
        self._storage.close()

    def announce(self, path: Path, *, size_bytes: int) -> dict[str, Any]:
        """Announce a file; returns where its bytes go."""
        body = {"filename": readable_name(path), "size_bytes": size_bytes}
        return self.client.object("POST", "/v1/uploads", json=body)

    def find_upload(self, upload_id: str) -> dict[str, Any] | None:
        """Return what has arrived and where the rest goes; None once it is forgotten."""
        return self._find(f"/v1/uploads/{upload_id}")

    def send(self, upload: Mapping[str, Any], file: BinaryIO) -> None:
        """Send what has not arrived of an upload.

        Raises:
            Stopped: The stop event was set meanwhile.
            Refused: The file has fewer bytes than were announced.
        """
        if upload["parts"] is None:
            if upload["received_bytes"] < upload["size_bytes"]:
                blocks = self._read(file, start=0, num_bytes=upload["size_bytes"])
                self._put(upload, upload["url"], blocks, num_bytes=upload["size_bytes"])
            return
        start = 0
        for part in upload["parts"]:
            if not part["received"]:
                blocks = self._read(file, start=start, num_bytes=part["size_bytes"])
                self._put(upload, part["url"], blocks, num_bytes=part["size_bytes"])
            start += part["size_bytes"]

    def post_batch(self, body: bytes, *, key: str) -> str:
        """Send a manifest, however often; returns the batch's id."""
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        return str(self.client.object("POST", "/v1/batches", content=body, headers=headers)["id"])

    def find_batch(self, batch_id: str) -> dict[str, Any] | None:
        """Return a batch, or None if it was deleted."""
        return self._find(f"/v1/batches/{batch_id}")

    def list_items(self, batch_id: str) -> dict[str, dict[str, Any]]:
        """Return what has become of a batch's lines so far, by `custom_id`."""
        found: dict[str, dict[str, Any]] = {}
        cursor: str | None = None
        while True:
            params: dict[str, Any] = {"limit": _ITEMS_A_PAGE}
            params |= {"cursor": cursor} if cursor else {}
            page = self.client.object("GET", f"/v1/batches/{batch_id}/jobs", params=params)
            found |= {str(item["custom_id"]): item for item in page["data"]}
            if (cursor := page["next_cursor"]) is None:
                return found

    def _find(self, path: str) -> dict[str, Any] | None:
        try:
            return self.client.object("GET", path)
        except Refused as exc:
            if exc.code == "not_found":
                return None
            raise

    def _put(
        self, upload: Mapping[str, Any], url: str, blocks: Iterator[bytes], *, num_bytes: int
    ) -> None:
        """Send one part; whatever is wrong with its URL is mended by asking for it again."""
        headers = {**upload["headers"], "Content-Length": str(num_bytes)}
        own = _own_path(url, str(upload["id"]))
        host = urlsplit(self.client.url if own is not None else url).netloc
        try:
            if own is not None:
                self.client.call("PUT", own, content=blocks, headers=headers)
            else:
                self._put_elsewhere(url, blocks, headers)
        except httpx.LocalProtocolError as exc:
            raise Refused(MEDIA_CHANGED, "the file changed while it was read") from exc
        except httpx.HTTPError as exc:
            raise NotNow(f"{host}, where uploads go, does not answer: {exc}") from exc
        except (Refused, Unauthenticated, Forbidden) as exc:
            if isinstance(exc, Refused) and exc.code == MEDIA_CHANGED:
                raise
            raise NotNow(f"{host} refuses an upload: {exc}", is_fault=True) from exc
        self.client.part_s = time.monotonic()

    def _put_elsewhere(self, url: str, blocks: Iterator[bytes], headers: dict[str, str]) -> None:
        response = self._storage.put(url, content=blocks, headers=headers)
        if not response.is_success:
            raise explain(response)

    def _read(self, file: BinaryIO, *, start: int, num_bytes: int) -> Iterator[bytes]:
        file.seek(start)
        while num_bytes > 0:
            if self.client.stop.is_set():
                raise Stopped
            block = file.read(min(num_bytes, _BLOCK_BYTES))
            if not block:
                return  # httpx counts, and says so
            num_bytes -= len(block)
            yield block


def _own_path(url: str, upload_id: str) -> str | None:
    """Return path and query of an upload that the service takes itself.

    Behind a proxy the service may know itself by another name or scheme than we do.
    """
    parts = urlsplit(url)
    place = parts.path.find(f"/v1/uploads/{upload_id}/")
    return None if place < 0 else f"{parts.path[place:]}?{parts.query}"
