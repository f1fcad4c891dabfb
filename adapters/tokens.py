"""Tokens of byte-level vocabularies, as the bytes they stand for and with what they cost."""

from collections.abc import Sequence
from functools import cache

from core.transcript import TokenLogprob

_DIGITS = 5


def spell_tokens(pieces: Sequence[str], logprobs: Sequence[float]) -> tuple[TokenLogprob, ...]:
    """Return tokens with their log probabilities.

    Args:
        pieces: As the vocabulary spells them, e.g. "Ġthere".
        logprobs: Of each, natural.
    """
    return tuple(
        TokenLogprob(utf8=tuple(token_bytes(piece)), logprob=round(logprob, _DIGITS))
        for piece, logprob in zip(pieces, logprobs, strict=True)
    )


def token_bytes(piece: str) -> bytes:
    """Return the bytes that a piece of a byte-level vocabulary stands for.

    What no such vocabulary contains stands for itself.
    """
    table = _bytes_by_char()
    return b"".join(
        bytes([table[char]]) if char in table else char.encode("utf-8", "replace") for char in piece
    )


@cache
def _bytes_by_char() -> dict[str, int]:
    """Return which byte a character spells: printable ones themselves, others from U+0100 on.

    Source: openai/gpt-2, src/encoder.py, `bytes_to_unicode`.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1)]
    printable += range(ord("®"), ord("ÿ") + 1)
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return table | {chr(256 + number): byte for number, byte in enumerate(others)}
