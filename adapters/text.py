"""What adapters do to text: keep control tokens out, collapse loops, tidy white space."""

import re
import unicodedata
import zlib
from collections.abc import Iterable

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What a byte-level tokenizer decodes the bytes of an unfinished character to."""

MAX_CHARACTER_RUN = 20
MIN_PATTERN_REPEATS = 20
MAX_PATTERN_CHARS = 20
LONGEST_CONTROL_TOKEN = 64

# Byte values that ASCII leaves over.
_FIRST_FREE_CODE = 0x80
_FREE_CODES = 0x80

# Source: QwenLM/Qwen3-ASR c17a131, qwen_asr/inference/utils.py detect_and_fix_repetitions: more
# than 20 equal characters, or at least 20 repeats of a pattern of at most 20, become one.
_CHARACTER_RUN = re.compile(rf"(.)\1{{{MAX_CHARACTER_RUN},}}", re.DOTALL)
_PATTERN_RUN = re.compile(
    rf"(.{{2,{MAX_PATTERN_CHARS}}}?)\1{{{MIN_PATTERN_REPEATS - 1},}}", re.DOTALL
)


def strip_control_tokens(text: str, tokens: Iterable[str] = ()) -> str:
    """Return `text` without `tokens` and anything of the form `<|…|>`, to a fixpoint.

    What the removal of one token joins into another is removed too. One pass with a stack, so
    that deeply nested hostile text costs no more than other text of its length: a token ends
    where its last character is pushed, and what lies under it was clean before.
    """
    tokens = tuple(tokens)
    if "<|" not in text and not any(token in text for token in tokens):
        return text
    by_last: dict[str, list[str]] = {}
    for token in tokens:
        if token:
            by_last.setdefault(token[-1], []).append(token)
    kept: list[str] = []
    for char in text:
        kept.append(char)
        if char not in by_last and char != ">":
            continue
        tail = "".join(kept[-LONGEST_CONTROL_TOKEN:])
        length = _control_suffix(tail, by_last.get(char, []))
        if length:
            del kept[-length:]
    return "".join(kept)


def _control_suffix(tail: str, tokens: list[str]) -> int:
    """Return the length of the control token `tail` ends with, or 0."""
    for token in tokens:
        if tail.endswith(token):
            return len(token)
    if tail.endswith("|>"):
        opening = tail.rfind("<|", 0, -2)
        if opening >= 0:
            return len(tail) - opening
    return 0


def collapse_repetitions(text: str) -> str:
    """Return `text` with the loops a model can fall into reduced to one occurrence."""
    return _PATTERN_RUN.sub(r"\1", _CHARACTER_RUN.sub(r"\1", text))


def settled_length(text: str) -> int:
    """Return how much of `text` no continuation can make `collapse_repetitions` take back.

    The rest repeats something directly before it and may be the beginning of a loop. Expects text
    in which runs of single characters are collapsed already (`collapse_character_runs`).
    """
    # The run of one character that the text ends with may yet become long and collapse.
    without_run = text.rstrip(text[-1]) + text[-1] if text else ""
    return min(_unrepeated_length(text), _unrepeated_length(without_run))


def _unrepeated_length(text: str) -> int:
    """Return where the end of `text` begins to repeat what is up to a pattern's length before."""
    settled = len(text)
    for period in range(1, min(MAX_PATTERN_CHARS, len(text) - 1) + 1):
        matched = 0
        while matched + period < len(text) and text[-1 - matched] == text[-1 - matched - period]:
            matched += 1
        settled = min(settled, len(text) - matched)
    return settled


def collapse_character_runs(text: str) -> str:
    """Do the first half of `collapse_repetitions`."""
    return _CHARACTER_RUN.sub(r"\1", text)


def collapse_pattern_runs(text: str) -> str:
    """Do the second half of `collapse_repetitions`."""
    return _PATTERN_RUN.sub(r"\1", text)


def squeeze_spaces(text: str) -> str:
    """Return `text` on one line with single spaces, none at its ends."""
    return " ".join(text.split())


def compression_ratio(text: str) -> float | None:
    """Return UTF-8 bytes over zlib bytes, or None for no text; above 2.4 suggests a loop.

    Source: openai/whisper v20250625, whisper/utils.py.
    """
    if not text:
        return None
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def letters_of(text: str) -> str:
    """Return the letters and digits of `text` with case folded: what remains comparable."""
    return "".join(char for char in text.casefold() if char.isalnum())


def loop_ratio(text: str) -> float:
    """Return `compression_ratio` as it would be if the text's letters took a byte each.

    UTF-8 spends two bytes or three on a letter that is not Latin, which zlib takes back: a Russian
    list of menu keys has 2.45 where its English original has 1.6. Chinese characters, kana and
    Hangul keep their three: they say more than a letter each.
    """
    codes: dict[str, int] = {}
    data = bytearray()
    for char in text:
        is_wide = unicodedata.east_asian_width(char) in "WF"
        if not (char.isascii() or is_wide or len(codes) == _FREE_CODES):
            codes.setdefault(char, _FIRST_FREE_CODE + len(codes))
        data += bytes((codes[char],)) if char in codes else char.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0
