"""From files to windows and texts, as the service does it but without its queue."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapters.base import Adapter, LoadOptions, Window
from adapters.loading import get_spec, load_adapter
from core.audio.decode import open_media
from core.audio.media import DecodeLimits
from core.audio.plan import iter_windows
from core.options import Channels
from core.transcript import join_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A line of a manifest."""

    path: Path
    name: str
    language: str
    seconds: float
    text: str


def read_manifest(folder: Path) -> list[Recording]:
    """Read `manifest.tsv` (columns file, language, seconds, text and any others) in `folder`."""
    with (folder / "manifest.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Recording(
            path=folder / row["file"],
            name=row["file"],
            language=row["language"],
            seconds=float(row["seconds"]),
            text=row["text"].strip('"'),
        )
        for row in rows
    ]


def load(folder: Path, *, dtype: str, num_threads: int) -> Adapter:
    """Load a checkpoint on the CPU."""
    return load_adapter(LoadOptions(folder=folder, dtype=dtype, num_threads=num_threads))


def cut(path: Path, folder: Path, *, language: str | None) -> list[Window]:
    """Return the windows of a file as `prepare` would cut them for the checkpoint in `folder`."""
    spec = get_spec(folder)
    with open_media(path, limits=DecodeLimits(), channels=Channels.MIX) as stream:
        return [
            Window(key=f"{path}:{window.index}", samples=samples, language=language)
            for window, samples in iter_windows(stream, window_ms=spec.window_ms, vad=True)
        ]


def batches(windows: Sequence[Window], size: int) -> Iterator[Sequence[Window]]:
    """Yield groups of at most `size` windows in order."""
    for first in range(0, len(windows), size):
        yield windows[first : first + size]


def transcribe(adapter: Adapter, windows: Sequence[Window], *, batch_size: int) -> list[str]:
    """Return the text of each window."""
    return [
        hypothesis.text
        for batch in batches(windows, batch_size)
        for hypothesis in adapter.transcribe(batch)
    ]


__all__ = ["Recording", "batches", "cut", "join_texts", "load", "read_manifest", "transcribe"]
