"""One pass of the decoder over a batch of rows: prefill, then a token a step until all are done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from adapters.whisper.fallback import MIN_AVG_LOGPROB
from adapters.whisper.network import Network
from adapters.whisper.rules import RowState, Rules
from adapters.whisper.segments import SHORTEST_TAIL_MS
from adapters.whisper.vocabulary import TIMESTAMP_STEP_MS, Vocabulary
from adapters.whisper.voice import Progress

# How often, and from which length on, a row is looked at for a loop. A pattern counts if it fills
# the last `_LOOP_TOKENS` tokens; real speech repeats itself, but not that long.
_LOOP_CHECK_EVERY = 16
_LOOP_TOKENS = 96
_LOOP_LONGEST = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRow:
    """What to decode.

    Attributes:
        encoded: The encoder's output, shape (1500 or fewer, width).
        prefix: All tokens before the first predicted one.
        start_index: Where <|startoftranscript|> stands in `prefix`.
        temperature: 0.0 is greedy.
        seed: Of this row's own random numbers.
        heard_until_ms: Where the window's last loud sound ends; a text that ends long before goes
            on. 0 takes the end as it comes.
        forced: What the answer begins with, whatever the model would choose.
        listener: Gets the answer so far after every token until it is complete.
    """

    encoded: torch.Tensor
    prefix: tuple[int, ...]
    start_index: int
    with_timestamps: bool
    temperature: float
    seed: int
    heard_until_ms: int = 0
    forced: tuple[int, ...] = ()
    listener: Callable[[Progress], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What a row said.

    Attributes:
        tokens: After the prefix, without <|endoftext|>.
        logprobs: Natural log of each token's probability. A timestamp that was set here, not
            chosen by the model, has that of the end in its place.
        avg_logprob: Mean natural-log probability of the tokens and of the end.
        is_finished: Whether the model ended by itself. If not, it ran into its context's end or
            into a loop, and the text must not be trusted.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    avg_logprob: float
    no_speech_prob: float
    is_finished: bool


class _Row:
    """A row that is being decoded."""

    def __init__(self, number: int, row: DecodeRow) -> None:
        self.number = number
        self.state = RowState(with_timestamps=row.with_timestamps)
        self.temperature = row.temperature
        self.random = np.random.default_rng(row.seed)
        self.position = len(row.prefix)
        self.heard_until_ms = row.heard_until_ms
        self.forced = row.forced
        self.listener = row.listener
        self.logprobs: list[float] = []  # of every step, the end included
        self.sum_logprob = 0.0
        self.no_speech_prob = 0.0
        # Where the text ended last: number of tokens and their sum, the end included.
        self.ended: tuple[int, float] | None = None

    def go_on(self) -> None:
        """Open a segment where the last one closed, though the model wanted to end."""
        self.ended = len(self.state.tokens), self.sum_logprob
        self.state.tokens.append(self.state.tokens[-1])
        self.position += 1

    def report(self) -> None:
        """Say how far the answer is, unless it may yet lose its end."""
        if self.listener is not None and self.ended is None:
            tokens = self.state.tokens
            self.listener(
                Progress(
                    tokens=tuple(tokens),
                    avg_logprob=self.sum_logprob / max(1, len(tokens)),
                    no_speech_prob=self.no_speech_prob,
                )
            )

    def answer(self, *, is_finished: bool) -> Decoded:
        """Return what was said, without an addition that is no better than a guess."""
        if self.ended is not None:
            num_tokens, sum_logprob = self.ended
            num_new = len(self.state.tokens) - num_tokens
            if not is_finished or self.sum_logprob - sum_logprob < MIN_AVG_LOGPROB * num_new:
                del self.state.tokens[num_tokens:]
                self.sum_logprob = sum_logprob
                is_finished = True
        return Decoded(
            tokens=tuple(self.state.tokens),
            logprobs=tuple(self.logprobs[: len(self.state.tokens)]),
            avg_logprob=self.sum_logprob / (len(self.state.tokens) + 1),
            no_speech_prob=self.no_speech_prob,
            is_finished=is_finished,
        )


class Decoder:
    """Decodes batches of rows; a row's answer does not depend on the others."""

    def __init__(self, network: Network, vocabulary: Vocabulary) -> None:
        self._network = network
        self._vocabulary = vocabulary
        self._rules = Rules(vocabulary, network.vocab_size, network.device)

    def decode(self, rows: Sequence[DecodeRow]) -> list[Decoded]:
        """Decode all `rows`; answers in their order."""
        cache = self._network.make_cache([row.encoded for row in rows])
        wanted = torch.tensor([[row.start_index, len(row.prefix) - 1] for row in rows])
        logits = self._network.prefill(cache, [row.prefix for row in rows], wanted)
        active = [_Row(number, row) for number, row in enumerate(rows)]
        no_speech = logits[:, 0].softmax(dim=-1)[:, self._vocabulary.no_speech].tolist()
        for row, probability in zip(active, no_speech, strict=True):
            row.no_speech_prob = probability
        answers: dict[int, Decoded] = {}
        logits = logits[:, 1]
        while True:
            chosen = self._choose(logits, active)
            # From the last to the first: a dropped row's place is taken by the last, already seen.
            for index in reversed(range(len(active))):
                row, token = active[index], chosen[index]
                answer = self._advance(row, token)
                if answer is not None:
                    answers[row.number] = answer
                    cache.drop(index)
                    active[index] = active[-1]
                    active.pop()
            if not active:
                return [answers[number] for number in range(len(rows))]
            for row in active:
                row.report()
            logits = self._network.step(
                cache,
                [row.state.tokens[-1] for row in active],
                [row.position - 1 for row in active],
            )

    def _advance(self, row: _Row, token: int) -> Decoded | None:
        """Append `token` to `row`; return its answer if it is done."""
        if token == self._vocabulary.end:
            if self._stops_early(row):
                row.go_on()
                return None
            return row.answer(is_finished=True)
        row.state.tokens.append(token)
        row.position += 1
        if row.position >= self._network.max_positions or self._is_looping(row.state.tokens):
            return row.answer(is_finished=False)
        return None

    def _stops_early(self, row: _Row) -> bool:
        """Whether a segment has just closed long before the sound ends.

        Whisper at times ends its text at a pause in mid-window. openai-whisper encodes the rest
        once more as a window of its own, batched decoders lose it; here the row goes on from the
        same encoding, which costs nothing but the tokens.
        """
        tokens, first = row.state.tokens, self._vocabulary.timestamp_begin
        if len(tokens) < 2 or tokens[-1] < first or tokens[-2] >= first:
            return False
        if row.position + 2 >= self._network.max_positions:
            return False
        ended_ms = (tokens[-1] - first) * TIMESTAMP_STEP_MS
        return row.heard_until_ms - ended_ms >= SHORTEST_TAIL_MS

    def _choose(self, logits: torch.Tensor, rows: Sequence[_Row]) -> list[int]:
        """Return each row's next token and add its log probability to the row's sum."""
        self._rules.apply(logits, [row.state for row in rows])
        tokens = logits.argmax(dim=-1)
        for index, row in enumerate(rows):
            if row.temperature > 0:
                tokens[index] = _sample(logits[index], row.temperature, row.random)
            if len(row.state.tokens) < len(row.forced):
                tokens[index] = row.forced[len(row.state.tokens)]
        logprobs = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(dim=-1)
        for row, logprob in zip(rows, logprobs.tolist(), strict=True):
            row.logprobs.append(logprob)
            row.sum_logprob += logprob
        chosen: list[int] = tokens.tolist()
        return chosen

    def _is_looping(self, tokens: Sequence[int]) -> bool:
        if len(tokens) < _LOOP_TOKENS or len(tokens) % _LOOP_CHECK_EVERY:
            return False
        tail = [t for t in tokens[-_LOOP_TOKENS:] if t < self._vocabulary.end]
        periods = range(1, min(_LOOP_LONGEST, len(tail) // 3) + 1)
        return not tail or any(tail[period:] == tail[:-period] for period in periods)


def _sample(logits: torch.Tensor, temperature: float, random: np.random.Generator) -> int:
    """Draw from softmax(logits / temperature) with one random number, by inverting its sum."""
    sums = (logits.double() / temperature).softmax(dim=-1).cumsum(dim=-1)
    target = random.random() * float(sums[-1])
    # The first token whose sum exceeds the target has a probability above zero.
    return int(torch.searchsorted(sums, target, right=True))
