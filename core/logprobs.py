"""Log probabilities of single tokens: cut to segments, joined to a transcript, shown. Pure.

Tokens are what the model wrote, so their bytes join to the text, but for what tidying changed:
where a loop was collapsed, or a control token removed, the tokens still show it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from core.transcript import Segment, TokenLogprob, join_texts, joint

_SPACES = b" \t\n\r\f\v"


def join_logprobs(segments: Iterable[Segment]) -> tuple[TokenLogprob, ...]:
    """Return the tokens of segments in order, with the white space between them that texts have."""
    joined: list[TokenLogprob] = []
    text = ""
    for segment in segments:
        tokens = trim_logprobs(segment.token_logprobs)
        seam = joint(text, segment.text).encode()
        if tokens and seam:
            tokens = (replace(tokens[0], utf8=(*seam, *tokens[0].utf8)), *tokens[1:])
        joined += tokens
        text = join_texts((text, segment.text))
    return tuple(joined)


def trim_logprobs(tokens: Sequence[TokenLogprob]) -> tuple[TokenLogprob, ...]:
    """Return the tokens without white space at both ends, as a segment's text has none."""
    trimmed = list(tokens)
    while trimmed and not (first := bytes(trimmed[0].utf8).lstrip(_SPACES)):
        trimmed.pop(0)
    if trimmed:
        trimmed[0] = replace(trimmed[0], utf8=tuple(first))
    while trimmed and not (last := bytes(trimmed[-1].utf8).rstrip(_SPACES)):
        trimmed.pop()
    if trimmed:
        trimmed[-1] = replace(trimmed[-1], utf8=tuple(last))
    return tuple(trimmed)


def fit_logprobs(text: str, tokens: Sequence[TokenLogprob]) -> tuple[TokenLogprob, ...]:
    """Return the tokens that `text` was written with, with as much white space before as it has.

    Tokens that begin later in the text, as another piece has the one before, keep theirs.
    """
    trimmed = trim_logprobs(tokens)
    if not trimmed:
        return ()
    first, written = bytes(trimmed[0].utf8), text.lstrip().encode()
    if written[: len(first)] != first[: len(written)]:
        return tuple(tokens)
    space = text[: len(text) - len(text.lstrip())].encode()
    return (replace(trimmed[0], utf8=tuple(space + first)), *trimmed[1:])


def split_logprobs(
    tokens: Sequence[TokenLogprob], texts: Sequence[str]
) -> list[tuple[TokenLogprob, ...]]:
    """Return the tokens of each of `texts`, the consecutive pieces of what `tokens` say.

    A token belongs to the piece that its first written byte lies in; white space does not count.
    What is left over, and white space at the end, goes to the last piece.
    """
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len("".join(text.split()).encode()))
    pieces: list[list[TokenLogprob]] = [[] for _ in texts]
    piece = at = 0
    for token in tokens:
        while piece < len(texts) - 1 and at >= ends[piece + 1]:
            piece += 1
        if pieces:
            pieces[piece].append(token)
        at += sum(byte not in _SPACES for byte in token.utf8)
    return [tuple(each) for each in pieces]


def graft_logprobs(
    text: str, first: Sequence[TokenLogprob], second: Sequence[TokenLogprob]
) -> tuple[TokenLogprob, ...]:
    """Return the tokens of a text whose head was read with `first` and whose rest with `second`.

    Tokens of `first` count as long as they spell the text, those of `second` from its end on. A
    token that lies across the seam is left out.
    """
    left = text.encode()
    head: list[TokenLogprob] = []
    for token in trim_logprobs(first):
        if not left.startswith(bytes(token.utf8)):
            break
        head.append(token)
        left = left[len(token.utf8) :]
    rest: list[TokenLogprob] = []
    for token in reversed(trim_logprobs(second)):
        piece = bytes(token.utf8)
        if piece.lstrip(_SPACES) == left:  # the text begins here
            piece = left
        if not left or not left.endswith(piece):
            break
        rest.insert(0, replace(token, utf8=tuple(piece)))
        left = left[: len(left) - len(piece)]
    return (*head, *rest)


def describe_logprobs(tokens: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    """Return OpenAI's `logprobs`; half a character shows as U+FFFD in `token`, whole in `bytes`.

    Source: openai 3.57.0, types/audio/transcription.py.
    """
    return [
        {
            "token": bytes(token.utf8).decode("utf-8", "replace"),
            "bytes": list(token.utf8),
            "logprob": token.logprob,
        }
        for token in tokens
    ]
