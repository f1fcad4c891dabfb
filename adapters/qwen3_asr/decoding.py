"""Greedy decoding of prompts of different lengths, with or without keys kept from before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from adapters.qwen3_asr.keys import KeptKeys, batch_keys, group_by_length, unbatch_keys

CALL_OVERHEAD = 48
"""Cost of a forward pass by itself in prompt positions, for grouping prompts: measured with the
smallest checkpoint on one CPU core (2.3 ms against 50 us a position)."""

_CROWDED = 0.75
"""Rows that are done leave the batch once no more than this part of it goes on: each departure
copies the others' keys, each row that stays is computed for nothing."""

TokenSink = Callable[[int, int], None]
"""Called with (row, token) for every token of an answer, as it is decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One prompt to answer.

    Attributes:
        embeddings: What follows the kept keys, shape (length, hidden), at least one position.
        kept: Keys of what came before, or none.
        max_new_tokens: Where to give up.
        temperature: 0.0 for greedy.
        seed: Of the sampling, so that a row's answer depends on nothing else.
    """

    embeddings: Tensor
    kept: KeptKeys = field(default_factory=KeptKeys)
    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt the model has read.

    Attributes:
        keys: Of all its positions, kept ones included; views of a batch's (`KeptKeys.clone`).
        logits: Of the token that follows, shape (vocabulary,), float32.
    """

    keys: KeptKeys
    logits: Tensor


@dataclass(slots=True)
class Decoded:
    """One row's answer.

    Attributes:
        tokens: Without the end token.
        sum_logprob: Natural log of the answer's probability, end token included.
        has_ended: Whether the model ended by itself; otherwise the token cap did.
    """

    tokens: list[int] = field(default_factory=list)
    sum_logprob: float = 0.0
    has_ended: bool = False


class Decoder:
    """The language model of a `Qwen3ASRForConditionalGeneration`.

    Attributes:
        num_tokens: Positions computed since loading (prompts and answers, without padding).
    """

    def __init__(self, model: Any, end_tokens: Sequence[int]) -> None:  # noqa: ANN401
        self.num_tokens = 0
        self._model = model
        self._config = model.config.text_config
        self._end_tokens = frozenset(end_tokens)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._model.device
        return device

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Return embeddings of shape (len(tokens), hidden)."""
        ids = torch.tensor(tokens, dtype=torch.long, device=self.device)
        embeddings: Tensor = self._model.get_input_embeddings()(ids)
        return embeddings

    def read(self, rows: Sequence[Row]) -> list[ReadPrompt]:
        """Read every row's prompt, those of similar length in one forward pass."""
        lengths = [len(row.embeddings) for row in rows]
        prompts: dict[int, ReadPrompt] = {}
        for group in group_by_length(lengths, overhead=CALL_OVERHEAD):
            read = self._read_together([rows[index] for index in group])
            prompts.update(zip(group, read, strict=True))
        self.num_tokens += sum(lengths)
        return [prompts[index] for index in range(len(rows))]

    def answer(self, rows: Sequence[Row], *, sink: TokenSink | None = None) -> list[Decoded]:
        """Read prompts and write their answers."""
        return self.write(self.read(rows), rows, sink=sink)

    def write(
        self, prompts: Sequence[ReadPrompt], rows: Sequence[Row], *, sink: TokenSink | None = None
    ) -> list[Decoded]:
        """Write the answers to prompts that were read; rows that are done leave in groups."""
        writers = [_Writer(at, row, self._end_tokens, sink) for at, row in enumerate(rows)]
        alive = list(writers)  # which row is where; those that are done may stay a while
        cache = batch_keys([prompt.keys for prompt in prompts], self._config)
        lengths = self._tensor([prompt.keys.length for prompt in prompts])
        mask = torch.arange(int(lengths.max()), device=self.device).flip(0) < lengths[:, None]
        logits = torch.stack([prompt.logits for prompt in prompts])
        while True:
            tokens, logprobs = _choose(logits, alive)
            for writer, token, logprob in zip(alive, tokens, logprobs, strict=True):
                writer.take(token, logprob)
            going = [place for place, writer in enumerate(alive) if writer.is_going]
            if not going:
                return [writer.answer for writer in writers]
            step = self._tensor(tokens)
            if len(going) <= _CROWDED * len(alive):
                index = self._tensor(going)
                cache.batch_select_indices(index)
                mask, lengths, step = mask[index], lengths[index], step[index]
                alive = [alive[place] for place in going]
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
            output = self._run(cache, mask, lengths[:, None], input_ids=step[:, None])
            self.num_tokens += len(going)
            lengths = lengths + 1
            logits = output[:, -1].float()

    def score(self, prompt: ReadPrompt, answers: Sequence[Sequence[int]]) -> Tensor:
        """Return the log probability of each of `answers` after `prompt`, shape (len(answers),).

        Args:
            answers: Token ids, at least two in each.
        """
        longest = max(len(answer) for answer in answers) - 1
        cache = batch_keys([prompt.keys] * len(answers), self._config)
        ids = torch.zeros(len(answers), longest, dtype=torch.long, device=self.device)
        for index, answer in enumerate(answers):
            ids[index, : len(answer) - 1] = self._tensor(answer[:-1])
        # Padding is on the right, where nothing real looks at it.
        output = self._model(input_ids=ids, cache=cache, use_cache=True)
        self.num_tokens += ids.numel()
        after = torch.log_softmax(output.logits.float(), dim=-1)
        start = torch.log_softmax(prompt.logits, dim=-1)
        scores = [
            start[answer[0]] + after[index, torch.arange(len(answer) - 1), list(answer[1:])].sum()
            for index, answer in enumerate(answers)
        ]
        return torch.stack(scores)

    def _read_together(self, rows: Sequence[Row]) -> list[ReadPrompt]:
        """Read prompts in one pass: kept keys and embeddings are left-padded, each by itself."""
        kept = [row.kept.length for row in rows]
        new = [len(row.embeddings) for row in rows]
        num_kept, num_new = max(kept), max(new)
        cache = batch_keys([row.kept for row in rows], self._config)
        inputs = rows[0].embeddings.new_zeros(len(rows), num_new, rows[0].embeddings.shape[1])
        mask = torch.zeros(len(rows), num_kept + num_new, dtype=torch.bool, device=self.device)
        positions = torch.zeros(len(rows), num_new, dtype=torch.long, device=self.device)
        spans = []
        for index, row in enumerate(rows):
            start = num_new - new[index]
            inputs[index, start:] = row.embeddings
            mask[index, num_kept - kept[index] : num_kept] = True
            mask[index, num_kept + start :] = True
            positions[index, start:] = kept[index] + torch.arange(new[index], device=self.device)
            old = (num_kept - kept[index], num_kept)
            spans.append([old, (num_kept + start, num_kept + num_new)])
        logits = self._run(cache, mask, positions, inputs_embeds=inputs)[:, -1].float()
        keys = unbatch_keys(cache, spans)
        return [ReadPrompt(*pair) for pair in zip(keys, logits, strict=True)]

    def _run(
        self,
        cache: DynamicCache,
        mask: Tensor,
        positions: Tensor,
        **inputs: Tensor,
    ) -> Tensor:
        """Return the logits of the last position, shape (rows, 1, vocabulary)."""
        output = self._model(
            **inputs,
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits
        return logits

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)


class _Writer:
    """One row's answer while it is written, and how its next token is chosen."""

    def __init__(
        self, index: int, row: Row, end_tokens: frozenset[int], sink: TokenSink | None
    ) -> None:
        self.answer = Decoded()
        self.is_going = True
        self.temperature = row.temperature
        self._index = index
        self._cap = row.max_new_tokens
        self._end_tokens = end_tokens
        self._sink = sink
        self._generator = torch.Generator().manual_seed(row.seed) if row.temperature > 0 else None

    def take(self, token: int, logprob: float) -> None:
        """Add the next token, unless the answer is complete."""
        if not self.is_going:
            return
        self.answer.sum_logprob += logprob
        self.answer.has_ended = token in self._end_tokens
        if not self.answer.has_ended:
            self.answer.tokens.append(token)
            if self._sink is not None:
                self._sink(self._index, token)
        self.is_going = not self.answer.has_ended and len(self.answer.tokens) < self._cap

    def sample(self, logits: Tensor) -> int:
        """Draw from the row's own generator, on the CPU, so that devices and neighbours agree."""
        probabilities = torch.softmax(logits.cpu() / self.temperature, dim=-1)
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


def _choose(logits: Tensor, writers: Sequence[_Writer]) -> tuple[list[int], list[float]]:
    """Return each row's next token and its log probability at temperature 1."""
    chosen = logits.argmax(dim=-1)
    for place, writer in enumerate(writers):
        if writer.temperature > 0 and writer.is_going:
            chosen[place] = writer.sample(logits[place])
    picked = logits.gather(-1, chosen[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
    return chosen.tolist(), picked.tolist()
