"""What the decoder may say next: suppressed tokens and the grammar of timestamps.

The rules are those of openai-whisper (`decoding.py`: SuppressBlank, SuppressTokens,
ApplyTimestampRules) as `transformers` applies them, for rows that stand at different places.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from adapters.whisper.vocabulary import Vocabulary

_NEVER = float("-inf")


@dataclass(slots=True)
class RowState:
    """What a row has said so far.

    Attributes:
        tokens: Everything after the prefix.
        with_timestamps: Whether timestamps are to be predicted.
    """

    with_timestamps: bool
    tokens: list[int] = field(default_factory=list)


class Rules:
    """Masks logits in place."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, device: torch.device) -> None:
        self._vocabulary = vocabulary
        self._device = device
        self._suppress = self._indices(token for token in vocabulary.suppress if token < vocab_size)
        self._begin_suppress = self._indices(
            token for token in vocabulary.begin_suppress if token < vocab_size
        )
        self._steps = torch.arange(vocab_size - vocabulary.timestamp_begin, device=device)

    def _indices(self, tokens: Iterable[int]) -> torch.Tensor:
        return torch.tensor(sorted(tokens), dtype=torch.long, device=self._device)

    def apply(self, logits: torch.Tensor, rows: Sequence[RowState]) -> None:
        """Mask `logits` of shape (num_rows, vocab_size), float32, in place."""
        logits.index_fill_(1, self._suppress, _NEVER)
        fresh = [number for number, row in enumerate(rows) if not row.tokens]
        if fresh:
            where = torch.tensor(fresh, device=self._device)
            logits[where[:, None], self._begin_suppress] = _NEVER
        timed = [number for number, row in enumerate(rows) if row.with_timestamps]
        if len(timed) == len(rows):
            self._apply_grammar(logits, rows)
        elif timed:
            where = torch.tensor(timed, device=self._device)
            part = logits[where]
            self._apply_grammar(part, [rows[number] for number in timed])
            logits[where] = part

    def _apply_grammar(self, logits: torch.Tensor, rows: Sequence[RowState]) -> None:
        first = self._vocabulary.timestamp_begin
        logits[:, self._vocabulary.no_timestamps] = _NEVER
        # A row's next timestamp lies in [low, high); text tokens lie below `text`, the end is
        # always beyond it.
        low, high, no_text = zip(*(self._bounds(row) for row in rows), strict=True)
        times = logits[:, first:]
        lows = torch.tensor(low, device=self._device)[:, None]
        highs = torch.tensor(high, device=self._device)[:, None]
        times.masked_fill_((self._steps < lows) | (self._steps >= highs), _NEVER)
        for number, limit in enumerate(no_text):
            if limit:
                logits[number, :limit] = _NEVER
        # If a timestamp of any kind is likelier than the likeliest text, it is one.
        is_time = times.logsumexp(dim=1) > logits[:, :first].amax(dim=1)
        logits[:, :first].masked_fill_(is_time[:, None], _NEVER)

    def _bounds(self, row: RowState) -> tuple[int, int, int]:
        """Return the steps the next timestamp may lie in, and below which id text is forbidden."""
        first = self._vocabulary.timestamp_begin
        num_steps = len(self._steps)
        tokens = row.tokens
        if not tokens:  # the first token is a timestamp near the start
            return 0, min(self._vocabulary.max_initial_timestamp + 1, num_steps), first
        last_is_time = tokens[-1] >= first
        before_is_time = len(tokens) < 2 or tokens[-2] >= first
        last_time = next((token - first for token in reversed(tokens) if token >= first), None)
        if last_is_time and before_is_time:  # an opening timestamp: text follows
            return num_steps, num_steps, 0
        if last_is_time:  # a closing one: the next opens, at the same time or later, or it is over
            return tokens[-1] - first, num_steps, self._vocabulary.end
        low = 0 if last_time is None else last_time + 1  # a segment is never empty
        return low, num_steps, 0
