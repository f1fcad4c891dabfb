"""Gives the segments of a window their words, by reading the finished text once more."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from adapters.whisper.network import Network
from adapters.whisper.vocabulary import Vocabulary
from adapters.whisper.words import (
    FRAME_MS,
    UNSPACED_LANGUAGES,
    Interval,
    Piece,
    find_token_starts,
    segment_room,
    settle,
    shorten_long,
    split_words,
    time_words,
)
from core.options import TaskKind
from core.transcript import Segment, Word


class WordTimer:
    """Finds word times with one checkpoint."""

    def __init__(self, network: Network, vocabulary: Vocabulary) -> None:
        self._network = network
        self._vocabulary = vocabulary
        self._heads = vocabulary.alignment_heads or tuple(network.late_heads)

    def time(
        self,
        segments: Sequence[Segment],
        encoded: torch.Tensor,
        *,
        language: str | None,
        task: TaskKind,
        duration_ms: int,
        until_ms: int | None = None,
    ) -> tuple[Segment, ...]:
        """Return `segments` with words, and with bounds that agree with them.

        Args:
            encoded: The encoder's output for the window.
            duration_ms: Of the window.
            until_ms: Where no word may end later, as the window is read again from there.
        """
        until_ms = duration_ms if until_ms is None else min(until_ms, duration_ms)
        tokens = [token for segment in segments for token in segment.tokens]
        if not tokens:
            return tuple(segments)
        starts, probabilities = self._align(tokens, encoded, language, task, duration_ms)
        written = "en" if task is TaskKind.TRANSLATE else language
        timed: list[Segment] = []
        first = after_ms = 0
        for number, segment in enumerate(segments):
            last = first + len(segment.tokens)
            pieces = split_words(
                segment.tokens, self._vocabulary.decode, is_spaced=written not in UNSPACED_LANGUAGES
            )
            is_last = number + 1 == len(segments)
            before_ms = until_ms if is_last else max(after_ms, segments[number + 1].start_ms)
            bounds = Interval(segment.start_ms, segment.end_ms)
            room = segment_room(bounds, after_ms=after_ms, before_ms=before_ms)
            words = _make_words(
                pieces, starts[first : last + 1], probabilities[first:last], room=room
            )
            if words:
                bounds = Interval(words[0].start_ms, words[-1].end_ms)
            start_ms = max(bounds.start_ms, after_ms)
            end_ms = max(start_ms, bounds.end_ms)
            timed.append(replace(segment, words=words, start_ms=start_ms, end_ms=end_ms))
            after_ms, first = end_ms, last
        return tuple(timed)

    def _align(
        self,
        tokens: Sequence[int],
        encoded: torch.Tensor,
        language: str | None,
        task: TaskKind,
        duration_ms: int,
    ) -> tuple[list[int], list[float]]:
        """Return the frame where each token and the end begin, and each token's probability."""
        prefix = self._vocabulary.prefix(language, task, with_timestamps=False)
        scores, logits = self._network.align(
            encoded, [*prefix, *tokens, self._vocabulary.end], self._heads
        )
        # What is seen while token i is predicted stands at the token before it.
        scores = scores[:, len(prefix) - 1 : -1]
        num_frames = min(max(1, -(-duration_ms // FRAME_MS)), scores.shape[-1])
        starts = find_token_starts(scores.cpu().numpy(), num_frames=num_frames)
        text_logits = logits[len(prefix) - 1 : -2, : self._vocabulary.end]
        odds = text_logits.softmax(dim=-1)
        where = torch.tensor(tokens, device=odds.device)[:, None]
        return starts, odds.gather(1, where)[:, 0].tolist()


def _make_words(
    pieces: Sequence[Piece],
    starts: Sequence[int],
    probabilities: Sequence[float],
    *,
    room: Interval,
) -> tuple[Word, ...]:
    """Return the words of one segment; `starts` and `probabilities` are those of its tokens."""
    intervals = shorten_long(pieces, time_words(pieces, starts))
    settled = settle(intervals, low_ms=room.start_ms, high_ms=room.end_ms)
    if not settled:
        return ()
    return tuple(
        Word(
            text=piece.text.strip(),
            start_ms=interval.start_ms,
            end_ms=interval.end_ms,
            probability=float(np.mean(probabilities[piece.first : piece.last])),
        )
        for piece, interval in zip(pieces, settled, strict=True)
    )
