"""Which recordings the paths on a command line mean."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

MEDIA_SUFFIXES = frozenset(
    f".{name}"
    for name in (  # noqa: SIM905 - fifty quoted words are harder to read
        "3gp 3gpp 3g2 aac ac3 aif aifc aiff amr ape asf au avi awb caf flac flv gsm m2ts m4a m4b "
        "m4v mka mkv mov mp1 mp2 mp3 mp4 mpeg mpg mts mxf oga ogg ogv ogx opus ra rm snd spx tta "
        "voc vob w64 wav wave weba webm wma wmv wv"
    ).split()
)
"""Taken from a folder by name alone; others, `.ts` among them, only if their content is media. A
file that is named on the command line is taken whatever it is called."""

_HEAD_BYTES = 2 * 188 + 1
"""Enough for the marks of three packets of an MPEG transport stream."""

_MAGIC = (  # offset and bytes that open a media file
    (0, b"fLaC"),
    (0, b"OggS"),
    (0, b"ID3"),
    (0, b"\x1aE\xdf\xa3"),  # Matroska, WebM
    (0, b"#!AMR"),
    (0, b"caff"),
    (0, b".snd"),
    (0, b"wvPK"),
    (0, b"0&\xb2u\x8ef\xcf\x11"),  # ASF: wma, wmv
    (4, b"ftyp"),  # MP4, M4A, MOV, 3GP
    (8, b"WAVE"),
    (8, b"AIFF"),
    (8, b"AIFC"),
    (8, b"AVI "),
)
_LAYER_3 = frozenset({0xE2, 0xE3, 0xF2, 0xF3, 0xFA, 0xFB})
"""Second byte of an MPEG audio frame of layer III after 0xFF (ISO 11172-3, 2.4.1.3); other layers
would take the byte-order mark of UTF-16 for music."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One recording to transcribe.

    Attributes:
        path: Absolute, as the person names it (links are not resolved).
        relative: Below the folder that was named; just the name for a file that was named.
    """

    path: Path
    relative: Path
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that was asked for and cannot be read."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that was found; nothing is left out of one of the three.

    Attributes:
        sources: Each recording once, in order.
        problems: What was asked for and cannot be read.
        others: Files in the folders that are no recordings.
    """

    sources: list[Source]
    problems: list[Problem]
    others: list[Path]


def find_sources(paths: Sequence[str]) -> Found:
    """Return every recording that `paths` mean.

    Args:
        paths: Files, folders (searched to the bottom, without hidden files and without following
            links to folders) or glob patterns (`**` goes through folders).
    """
    sources: dict[Path, Source] = {}
    problems: dict[Path, Problem] = {}
    others: dict[Path, None] = {}
    for found in (item for text in paths for item in _expand(text)):
        if isinstance(found, Path):
            others[found] = None
            continue
        # The same recording by two paths is one; a link to it is one too.
        key = Path(os.path.realpath(found.path))
        if isinstance(found, Source):
            sources.setdefault(key, found)
        else:
            problems.setdefault(found.path, found)
    return Found(
        sources=list(sources.values()), problems=list(problems.values()), others=list(others)
    )


def looks_like_media(head: bytes) -> bool:
    """Whether a file that begins with `head` (377 bytes or all there are) is audio or video."""
    if any(head[offset : offset + len(magic)] == magic for offset, magic in _MAGIC):
        return True
    if head[0::188] == b"GGG":  # ISO 13818-1: packets of 188 bytes that begin with 0x47
        return True
    return len(head) > 1 and head[0] == 0xFF and head[1] in _LAYER_3


def _expand(text: str) -> Iterator[Source | Problem | Path]:
    path = Path(text).expanduser()
    if os.path.lexists(path):
        matches: Iterable[Path] = (path,)
    elif glob.has_magic(text):
        # `Path.glob` takes no absolute patterns.
        matches = [Path(m) for m in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    else:
        matches = ()
    if not matches:
        yield Problem(path=path.absolute(), reason="no such file or folder")
    for match in matches:
        if match.is_dir():
            yield from _walk(match.absolute())
        else:
            yield _take(match.absolute(), Path(match.name))


def _walk(root: Path) -> Iterator[Source | Problem | Path]:
    failures: list[OSError] = []
    for folder, names, files in os.walk(root, onerror=failures.append):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith("."):
                continue
            if path.suffix.lower() in MEDIA_SUFFIXES or _is_media_inside(path):
                yield _take(path, path.relative_to(root))
            else:
                yield path
    for failure in failures:
        yield Problem(path=Path(failure.filename), reason=_reason(failure))


def _take(path: Path, relative: Path) -> Source | Problem:
    try:
        stat = path.stat()
    except OSError as exc:
        return Problem(path=path, reason=_reason(exc))
    if not S_ISREG(stat.st_mode):
        return Problem(path=path, reason="not an ordinary file")
    return Source(path=path, relative=relative, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns)


def _is_media_inside(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe or a device would block
            return False
        with path.open("rb") as file:
            return looks_like_media(file.read(_HEAD_BYTES))
    except OSError:
        return False  # nothing says that this was a recording


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
