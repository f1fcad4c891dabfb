"""The steps of a recording into a batch of a distant server, and of the batch to its end.

Runs in threads of a pool, as `cli.steps` does.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cli.bulk_client import BulkClient
from cli.client import MEDIA_CHANGED, NotNow, Refused
from cli.ledger import Transfer
from cli.steps import FileResult, Gone, Item, Later, Pending, Running, Steps

OutcomeT = TypeVar("OutcomeT")


@dataclass(eq=False, kw_only=True)
class Load(Item):
    """A recording that goes into a batch.

    Attributes:
        transfer: How far it is; None before it was announced.
        upload: What the server said of it last, as long as that is fresh.
        num_restarts: How often the server has forgotten it.
    """

    transfer: Transfer | None = None
    upload: dict[str, Any] | None = None
    num_restarts: int = 0


@dataclass(eq=False, kw_only=True)
class Shipment(Pending):
    """A batch and those of its recordings that have no result yet, by reference.

    Attributes:
        key: See `cli.ledger.Manifest`, like `body` and `batch_id`.
        is_resumed: Whether an earlier run made it, so that it holds more than this run knows of.
        heard_s: Audio of it that was recognised when last looked at, seconds.
        finished_s: Audio of its recordings that have a result.
    """

    key: str
    body: bytes
    batch_id: str | None = None
    is_resumed: bool = False
    loads: dict[str, Load] = field(default_factory=dict)
    heard_s: float = 0.0
    finished_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Announced:
    """The server waits for the bytes."""

    upload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """All bytes have arrived."""


@dataclass(frozen=True, slots=True)
class Posted:
    """The batch exists."""

    batch_id: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What has become of a batch.

    Attributes:
        items: Lines that were read so far, by `custom_id`.
        is_over: Whether nothing more happens by itself.
    """

    items: dict[str, dict[str, Any]]
    audio_s_done: float
    is_over: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """The server will not take the batch."""

    code: str
    message: str


BulkOutcome = Announced | Sent | Posted | Looked | Rejected | Running | Gone | FileResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSteps:
    """The steps, for one server and one plan."""

    bulk: BulkClient
    steps: Steps

    def announce(self, load: Load) -> Announced:
        """Ask where the bytes go."""
        return Announced(self.bulk.announce(load.source.path, size_bytes=load.source.size_bytes))

    def send(self, load: Load) -> Sent | Gone:
        """Send what the server has not got."""
        if load.transfer is None:
            raise ValueError("it was not announced")
        upload, load.upload = load.upload, None  # after a failure the server knows better
        upload = upload or self.bulk.find_upload(load.transfer.upload_id)
        if upload is None:
            return Gone()
        with load.source.path.open("rb") as file:
            self.bulk.send(upload, file)
        stat = load.source.path.stat()
        if (stat.st_size, stat.st_mtime_ns) != (load.source.size_bytes, load.source.mtime_ns):
            raise Refused(MEDIA_CHANGED, "the file changed while it was read")
        return Sent()

    def take(
        self, action: Callable[[Shipment], OutcomeT], shipment: Shipment
    ) -> OutcomeT | Rejected | Later:
        """Do one of the steps of a batch; what goes wrong with the server is an outcome."""
        try:
            return action(shipment)
        except NotNow as exc:
            return Later(exc)
        except Refused as exc:
            return Rejected(exc.code, str(exc))

    def post(self, shipment: Shipment) -> Posted:
        """Send the manifest; harmless if that was done before."""
        return Posted(self.bulk.post_batch(shipment.body, key=shipment.key))

    def look(self, shipment: Shipment) -> Looked | Gone:
        """See how far a batch is."""
        if shipment.batch_id is None:
            raise ValueError("it was not posted")
        batch = self.bulk.find_batch(shipment.batch_id)
        if batch is None:
            return Gone()
        # After the batch: a line that is missing here from one that is over was never read.
        return Looked(
            items=self.bulk.list_items(shipment.batch_id),
            audio_s_done=batch["audio_s_done"],
            is_over=batch["finished_at"] is not None,
        )


def write_manifest(loads: list[Load], options: dict[str, str]) -> bytes:
    """Return a batch's lines: options in each, for URLs are too short for a long prompt."""
    lines = []
    for load in loads:
        if load.transfer is None:
            raise ValueError("it was not sent")
        line = {
            "custom_id": load.reference,
            "upload_id": load.transfer.upload_id,
            "reference": load.reference,
            **options,
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines).encode()
