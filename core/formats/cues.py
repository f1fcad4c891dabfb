"""Subtitle cues from segments: short lines, one after another, never overlapping. Pure.

The default limits are Netflix's "Timed Text Style Guide: General Requirements" (2 lines, 42
characters, 5/6 s to 7 s); full-width characters count twice, which gives its 16 to 21 a line for
Chinese and Japanese.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from core.transcript import Segment, is_unspaced

# May not begin a line (kinsoku shori, JIS X 4051), and may not end one.
_CLOSING = frozenset(
    "、。，．・：；？！）」』】〕〉》’”…ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々%‰"  # noqa: RUF001
)
_OPENING = frozenset("（「『【〔〈《‘“")  # noqa: RUF001
_PAUSES = tuple(".,;:?!…。、，？！；：")  # noqa: RUF001


@dataclass(frozen=True, slots=True, kw_only=True)
class CueStyle:
    """Limits of one cue; a single unbreakable word may exceed the line length only by being cut."""

    max_line_chars: int = 42
    max_lines: int = 2
    min_ms: int = 833
    max_ms: int = 7000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """Lines on the screen for a while; `start_ms` < `end_ms`."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Atom:
    """A piece of text that no line break may divide."""

    text: str
    width: int
    has_space: bool
    num_chars: int


def plan_cues(
    segments: Iterable[Segment], style: CueStyle, *, until_ms: int | None = None
) -> list[Cue]:
    """Return the cues in order of start, without overlaps, none empty, reversed or of no length.

    Segments may overlap (two channels), have no length, or lie out of order. Where two begin
    together, they share the time. No text is left out.

    Args:
        until_ms: End of the media; a short last cue is not drawn out beyond it.
    """
    cues = [
        cue
        for segment in sorted(segments, key=lambda s: (s.start_ms, s.end_ms))
        for cue in _split_segment(segment, style)
    ]
    cues.sort(key=lambda cue: (cue.start_ms, cue.end_ms))
    return _set_durations(_separate(cues, style), style, until_ms)


def one_line(text: str) -> str:
    """Return `text` with every run of white space as one space: a blank line would end a cue."""
    return re.sub(r"\s+", " ", text).strip()


def text_width(text: str) -> int:
    """Return columns: 2 for a full-width character, 0 for a combining one, else 1."""
    return sum(_char_width(char) for char in text)


def wrap(text: str, max_width: int) -> list[str]:
    """Return the fewest lines of at most `max_width` columns, and those as even as they can be."""
    return _wrap(_atoms(text, max_width), max_width)


def _split_segment(segment: Segment, style: CueStyle) -> list[Cue]:
    atoms = _atoms(one_line(segment.text), style.max_line_chars)
    if not atoms:
        return []
    duration_ms = segment.end_ms - segment.start_ms
    per_cue = style.max_line_chars * style.max_lines
    num_cues = max(
        1,
        math.ceil(sum(atom.width for atom in atoms) / per_cue),
        math.ceil(duration_ms / style.max_ms),
    )
    groups = _divide(atoms, num_cues)
    while any(
        len(_wrap(group, style.max_line_chars)) > style.max_lines for group in groups
    ) and num_cues < len(atoms):
        num_cues += 1
        groups = _divide(atoms, num_cues)
    cues, chars_before = [], 0
    clock = _Clock(segment, sum(atom.num_chars for atom in atoms))
    for group in groups:
        num_chars = sum(atom.num_chars for atom in group)
        cues.append(
            Cue(
                start_ms=clock.start_of(chars_before),
                end_ms=clock.end_of(chars_before + num_chars - 1),
                lines=tuple(_wrap(group, style.max_line_chars)),
            )
        )
        chars_before += num_chars
    return cues


class _Clock:
    """When the n-th printed character of a segment is spoken: by its words, else in proportion."""

    def __init__(self, segment: Segment, num_chars: int) -> None:
        self._segment = segment
        self._num_chars = num_chars
        words = [(word, len(re.sub(r"\s", "", word.text))) for word in segment.words]
        self._words = [word for word, count in words for _ in range(count)]
        if len(self._words) != num_chars:
            self._words = []

    def start_of(self, index: int) -> int:
        if index == 0:
            return self._segment.start_ms
        return self._words[index].start_ms if self._words else self._at(index)

    def end_of(self, index: int) -> int:
        if index == self._num_chars - 1:
            return self._segment.end_ms
        return self._words[index].end_ms if self._words else self._at(index + 1)

    def _at(self, index: int) -> int:
        length_ms = self._segment.end_ms - self._segment.start_ms
        return self._segment.start_ms + length_ms * index // self._num_chars


def _separate(cues: Sequence[Cue], style: CueStyle) -> list[Cue]:
    """Cut overlaps so that every cue ends before or when the next begins, and has a length."""
    result: list[Cue] = []
    for given in cues:
        cue = replace(given, end_ms=max(given.end_ms, given.start_ms))
        if result and cue.start_ms < max(result[-1].end_ms, result[-1].start_ms + 1):
            previous = result[-1]
            seam_ms = cue.start_ms
            if seam_ms - previous.start_ms < style.min_ms:
                # Beginning (nearly) together: half of the time they cover to each.
                middle_ms = (previous.start_ms + max(previous.end_ms, cue.end_ms)) // 2
                seam_ms = max(seam_ms, middle_ms, previous.start_ms + 1)
            result[-1] = replace(previous, end_ms=seam_ms)
            cue = replace(cue, start_ms=seam_ms, end_ms=max(cue.end_ms, seam_ms))
        result.append(cue)
    return result


def _set_durations(cues: Sequence[Cue], style: CueStyle, until_ms: int | None) -> list[Cue]:
    result = []
    for index, cue in enumerate(cues):
        wanted_ms = min(max(cue.end_ms - cue.start_ms, style.min_ms), style.max_ms)
        end_ms = cue.start_ms + wanted_ms
        if index + 1 < len(cues):
            end_ms = min(end_ms, cues[index + 1].start_ms)
        elif until_ms is not None:
            end_ms = min(end_ms, max(until_ms, cue.end_ms))
        result.append(replace(cue, end_ms=max(end_ms, cue.start_ms + 1)))
    return result


def _divide(atoms: Sequence[_Atom], num_groups: int) -> list[list[_Atom]]:
    """Cut into groups of about equal width, rather at a comma or full stop than beside one."""
    num_groups = min(num_groups, len(atoms))
    total = sum(atom.width for atom in atoms)
    ends: list[int] = []
    for number in range(1, num_groups):
        target = total * number / num_groups
        first = (ends[-1] if ends else 0) + 1
        last = len(atoms) - (num_groups - number)
        ends.append(_best_end(atoms, first, last, target, bonus=total / num_groups / 4))
    bounds = [0, *ends, len(atoms)]
    return [list(atoms[a:b]) for a, b in itertools.pairwise(bounds)]


def _best_end(atoms: Sequence[_Atom], first: int, last: int, target: float, *, bonus: float) -> int:
    """Return the end in `first..last` whose width before it is nearest to `target`."""
    before = sum(atom.width for atom in atoms[:first])
    best, best_cost = first, math.inf
    for end in range(first, last + 1):
        cost = abs(before - target) - (bonus if atoms[end - 1].text.endswith(_PAUSES) else 0)
        if cost < best_cost:
            best, best_cost = end, cost
        if end < last:
            before += atoms[end].width
    return best


def _wrap(atoms: Sequence[_Atom], max_width: int) -> list[str]:
    lines = _fill(atoms, max_width)
    width = max_width - 1
    while len(lines) > 1 and len(narrower := _fill(atoms, width)) == len(lines):
        if max(map(text_width, narrower)) > width:
            break
        lines, width = narrower, width - 1
    return lines


def _fill(atoms: Sequence[_Atom], max_width: int) -> list[str]:
    lines: list[str] = []
    line, line_width = "", 0
    for atom in atoms:
        space = " " if line and atom.has_space else ""
        if line and line_width + len(space) + atom.width > max_width:
            lines.append(line)
            line, line_width, space = "", 0, ""
        line += space + atom.text
        line_width += len(space) + atom.width
    return [*lines, line] if line else lines


def _atoms(text: str, max_width: int) -> list[_Atom]:
    atoms: list[_Atom] = []
    for chunk in text.split():
        for index, piece in enumerate(_pieces(chunk)):
            for number, part in enumerate(_hard_cut(piece, max_width)):
                has_space = index == 0 and number == 0 and bool(atoms)
                atoms.append(_Atom(part, text_width(part), has_space, len(part)))
    return atoms


def _pieces(chunk: str) -> list[str]:
    """Cut where a line may break inside a chunk without spaces: between unspaced characters."""
    pieces: list[str] = []
    for char in chunk:
        is_glued = (
            not pieces
            or char in _CLOSING
            or pieces[-1][-1] in _OPENING
            or unicodedata.category(char).startswith("M")
            or not (is_unspaced(char) or is_unspaced(pieces[-1][-1]))
        )
        if is_glued and pieces:
            pieces[-1] += char
        else:
            pieces.append(char)
    return pieces


def _hard_cut(piece: str, max_width: int) -> list[str]:
    parts, part, width = [], "", 0
    for char in piece:
        if part and width + _char_width(char) > max_width:
            parts.append(part)
            part, width = "", 0
        part += char
        width += _char_width(char)
    return [*parts, part]


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
