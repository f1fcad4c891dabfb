"""Where transcripts go, and writing them."""

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from cli.sources import Source
from core.errors import InvalidOption

FORMATS = {"txt": "text", "srt": "srt", "vtt": "vtt", "json": "verbose_json", "tsv": "tsv"}
"""File extension -> format of the API."""

_HASH_CHARS = 8


def parse_formats(text: str) -> tuple[str, ...]:
    """Return the formats in "txt,srt", each once.

    Raises:
        InvalidOption: One is unknown, or none is named.
    """
    formats = tuple(dict.fromkeys(p.strip().lower() for p in text.split(",") if p.strip()))
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise InvalidOption(
            f"--format takes {','.join(FORMATS)}, not {','.join(unknown) or 'nothing'}.",
            param="format",
        )
    return formats


def plan_stems(
    sources: Sequence[Source], output: Path | None, is_foreign: Callable[[Source, Path], bool]
) -> list[Path]:
    """Return for each source its transcripts' path without the extension, no two alike.

    "talk.mp3" becomes "talk" (players look for "talk.srt"). Where that would be shared with
    "talk.wav", or a file is there that is not ours to overwrite, it becomes "talk.mp3"; where that
    is taken too, a hash of the source's path is added.

    Args:
        output: Folder that mirrors the folders named on the command line; None: beside the media.
        is_foreign: Whether writing to this path without extension would replace a file that
            Scriptorium did not write for this source.
    """
    folders = [_folder(source, output) for source in sources]
    short = [folder / s.path.stem for folder, s in zip(folders, sources, strict=True)]
    full = [folder / s.path.name for folder, s in zip(folders, sources, strict=True)]
    num_short, num_full = Counter(map(_key, short)), Counter(map(_key, full))
    taken: set[str] = set()
    stems = []
    for source, brief, whole in zip(sources, short, full, strict=True):
        if (
            num_short[_key(brief)] == 1
            and _key(brief) not in taken
            and not is_foreign(source, brief)
        ):
            stem = brief
        elif (
            num_full[_key(whole)] == 1
            and _key(whole) not in taken
            and not is_foreign(source, whole)
        ):
            stem = whole
        else:
            digest = hashlib.sha256(os.fsencode(source.path)).hexdigest()[:_HASH_CHARS]
            stem = whole.with_name(f"{whole.name}-{digest}")
        taken.add(_key(stem))
        stems.append(stem)
    return stems


def with_format(stem: Path, name: str) -> Path:
    """Return the path of one format: "a.b" is a stem, not a name with an extension."""
    return stem.with_name(f"{stem.name}.{name}")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is either complete or not there; creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part"[-255:])
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _folder(source: Source, output: Path | None) -> Path:
    return source.path.parent if output is None else output / source.relative.parent


def _key(path: Path) -> str:
    """Return what is equal for paths that some file system takes for one."""
    return unicodedata.normalize("NFC", str(path)).casefold()
