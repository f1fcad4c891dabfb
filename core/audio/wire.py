"""How a parent and its decoding child talk: arguments one way, frames the other.

A frame is a kind (1 byte), the payload's length (4 bytes, little endian) and the payload:
`INFO` (JSON of `MediaInfo`), then `BLOCK`s (float32 samples, channel after channel), then `END`
(JSON list of warnings); or, at any point, `FAILED` (JSON with a media error's code and message).
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

INFO, BLOCK, END, FAILED = b"I", b"B", b"Z", b"E"
KINDS = frozenset({INFO, BLOCK, END, FAILED})

HEADER = struct.Struct("<cI")
STATUS = struct.Struct("<i")
"""How a child of the nursery ended: its exit code, or minus the signal's number."""

MAX_REQUEST_BYTES = 4096
"""Of `Arguments`, and of whatever else goes to or from the nursery."""

MAX_PAYLOAD_BYTES = 64 * 1024**2
"""A longer payload means that the child is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the parent asks for, as JSON in the child's first argument.

    Attributes:
        rate_hz: Rate of the samples to deliver.
        is_split: Keep channels apart instead of mixing them.
        is_probe: Stop after the first block.
        num_excerpts: If not 0, deliver that many parts of the media, evenly spread by its claimed
            length, instead of all of it; each is padded with zeros to `excerpt_samples`.
        excerpt_samples: Length of each, at `rate_hz`.
        max_media_s: Longest audio to deliver.
        cpu_s: Most CPU time.
        memory_bytes: Most address space.
        parent_pid: Whose death ends the child.
    """

    rate_hz: int
    is_split: bool
    is_probe: bool
    max_media_s: int
    cpu_s: int
    memory_bytes: int
    parent_pid: int
    num_excerpts: int = 0
    excerpt_samples: int = 0


def write_frame(out: BinaryIO, kind: bytes, payload: bytes | memoryview) -> None:
    """Write one frame and flush it."""
    out.write(HEADER.pack(kind, len(payload)))
    out.write(payload)
    out.flush()


def write_json(out: BinaryIO, kind: bytes, data: Mapping[str, object] | Sequence[str]) -> None:
    """Write one frame with a JSON payload."""
    write_frame(out, kind, json.dumps(data).encode())
