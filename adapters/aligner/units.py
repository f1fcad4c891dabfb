"""Alignment units of a written text, and the written words they stand for. No torch.

The aligner reads a text without punctuation ("3.5" is one unit, "35"); people want what was
written. So every unit keeps the span of text it came from.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

_OPENING_CATEGORIES = ("Ps", "Pi", "Sc")  # brackets, quotes, currency: they belong to what follows


@dataclass(frozen=True, slots=True)
class Unit:
    """What the aligner reads as one word.

    Attributes:
        text: Letters, digits and apostrophes only.
        start, end: The span of the written text it came from, from its first kept character to
            its last.
    """

    text: str
    start: int
    end: int


def split_units(text: str) -> list[Unit]:
    """Return the units of a text in a language that needs no dictionary.

    Ideographs are units by themselves, other scripts are split at white space.

    Source: transformers 5.24, processing_qwen3_asr.py split_words_for_alignment (the tests
    compare the texts with it).
    """
    units: list[Unit] = []
    chars: list[str] = []
    start = end = 0
    for at, char in enumerate(text):
        if is_ideograph(char) or char.isspace():
            if chars:
                units.append(Unit("".join(chars), start, end))
                chars = []
            if is_ideograph(char):
                units.append(Unit(char, at, at + 1))
        elif is_kept(char):
            start = start if chars else at
            end = at + 1
            chars.append(char)
    if chars:
        units.append(Unit("".join(chars), start, end))
    return units


def locate_units(text: str, tokens: Sequence[str]) -> list[Unit] | None:
    """Return the units that a morphological tokenizer cut `text` into.

    Returns:
        None if the tokens do not spell the text, which would put times on the wrong words.
    """
    positions = [at for at, char in enumerate(text) if is_kept(char)]
    units: list[Unit] = []
    used = 0
    for token in tokens:
        kept = "".join(char for char in token if is_kept(char))
        span = positions[used : used + len(kept)]
        if "".join(text[at] for at in span) != kept:
            return None
        if kept:
            units.append(Unit(kept, span[0], span[-1] + 1))
        used += len(kept)
    return units if used == len(positions) else None


def write_words(text: str, units: Sequence[Unit]) -> list[str]:
    """Return the written word of every unit; together they hold all but the space between them.

    Punctuation goes with the word before it, opening brackets, quotes and currency signs with the
    one after it, also when they stand alone ("a - b" is "a -" and "b").
    """
    return [text[start:end].strip() for start, end in _bounds(text, units)]


def _bounds(text: str, units: Sequence[Unit]) -> Iterator[tuple[int, int]]:
    start = 0
    for left, right in pairwise(units):
        end = _seam(text, left.end, right.start)
        yield start, end
        start = end
    if units:
        yield start, len(text)


def _seam(text: str, left: int, right: int) -> int:
    """Return where in `text[left:right]`, free of kept characters, the next word begins."""
    seam = right
    while seam > left and unicodedata.category(text[seam - 1]) in _OPENING_CATEGORIES:
        seam -= 1
    return seam


def is_ideograph(char: str) -> bool:
    """Whether `char` is a Chinese character, also in Japanese and Korean text."""
    point = ord(char)
    return any(low <= point <= high for low, high in _IDEOGRAPHS)


def is_kept(char: str) -> bool:
    """Whether the aligner reads `char`: letters, numbers and the apostrophe."""
    return char == "'" or unicodedata.category(char)[0] in "LN"
