"""The real worker process with a model that computes nothing: `python -m benchmarks.fake_worker`.

Takes the arguments of `scriptorium worker`. Whatever it costs is the cost of everything but the
model.
"""

import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters.base import AdapterSpec, LoadOptions, Window
from adapters.registry import register_transcription_adapter
from core.transcript import Hypothesis, Segment

ARCHITECTURE = "ChecksumForTranscription"


@register_transcription_adapter("Checksum")
class ChecksumAdapter:
    """Hears the checksum of a window's samples."""

    spec = AdapterSpec(name="checksum", window_ms=30_000, detects_by_vote=False)
    languages = frozenset({"en"})

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> AdapterSpec:  # noqa: ARG003 - the contract's
        return cls.spec

    @classmethod
    def load(cls, options: LoadOptions) -> "ChecksumAdapter":  # noqa: ARG003 - the contract's
        return cls()

    def detect_language(self, windows: Sequence[Window]) -> list[dict[str, float]]:
        return [{"en": 1.0} for _ in windows]

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        return [
            Hypothesis(
                segments=(
                    Segment(
                        text=f"{zlib.crc32(window.samples.tobytes()):08x}",
                        start_ms=0,
                        end_ms=window.duration_ms,
                    ),
                ),
                language="en",
            )
            for window in windows
        ]

    def close(self) -> None:
        pass


def write_checkpoint(folder: Path) -> Path:
    """Write what makes a folder look like this model's checkpoint; return it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(f'{{"architectures": ["{ARCHITECTURE}"]}}')
    (folder / "model.safetensors").write_bytes(b"nothing")
    return folder


if __name__ == "__main__":
    from cli.main import app

    app(["worker", *sys.argv[1:]])
