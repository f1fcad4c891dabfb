"""Greedy decoding of prompts of different lengths, with or without keys and values kept before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

TokenSink = Callable[[int, int], None]
"""Called with (row, token) for every token of an answer, as it is decoded."""


@dataclass(frozen=True, slots=True)
class KeptKeys:
    """Keys and values of a prompt's beginning, layer by layer, for one row.

    Attributes:
        layers: (keys, values), each of shape (heads, length, head_dim).
    """

    layers: tuple[tuple[Tensor, Tensor], ...] = ()

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.layers[0][0].shape[1] if self.layers else 0

    def crop(self, length: int) -> "KeptKeys":
        """Return the first `length` positions."""
        return KeptKeys(
            tuple((keys[:, :length], values[:, :length]) for keys, values in self.layers)
        )


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


@dataclass(slots=True)
class Prefilled:
    """A batch whose prompts the model has read.

    Attributes:
        logits: Of the next token, shape (rows, vocabulary), float32.
        cache: Rows are left-padded twice: kept keys to the longest, then embeddings.
        mask: 1 for real positions, shape (rows, positions).
        lengths: Positions of each row so far, shape (rows,).
    """

    logits: Tensor
    cache: Any
    mask: Tensor
    lengths: Tensor
    num_kept: int
    num_new: int

    def keep(self, row: int, rows: Sequence[Row], num_stable: int) -> KeptKeys:
        """Return a row's kept keys and those of the first `num_stable` of its embeddings.

        Call it before `Decoder.decode`, which drops rows that are done.
        """
        kept = rows[row].kept
        first = self.num_kept + self.num_new - len(rows[row].embeddings)
        added = [
            (
                layer.keys[row, :, first : first + num_stable],
                layer.values[row, :, first : first + num_stable],
            )
            for layer in self.cache.layers
        ]
        if not kept.length:
            return KeptKeys(tuple((keys.clone(), values.clone()) for keys, values in added))
        return KeptKeys(
            tuple(
                (torch.cat([old_keys, keys], dim=1), torch.cat([old_values, values], dim=1))
                for (old_keys, old_values), (keys, values) in zip(kept.layers, added, strict=True)
            )
        )


class Decoder:
    """The language model of a `Qwen3ASRForConditionalGeneration`.

    Attributes:
        num_tokens: Positions computed since loading (prompts and answers, without padding).
    """

    def __init__(self, model: Any, end_tokens: Sequence[int]) -> None:  # noqa: ANN401
        self.num_tokens = 0
        self._model = model
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

    def prefill(self, rows: Sequence[Row]) -> Prefilled:
        """Read every row's prompt in one forward pass."""
        kept = [row.kept.length for row in rows]
        new = [len(row.embeddings) for row in rows]
        num_kept, num_new = max(kept), max(new)
        cache = self._batch_kept([row.kept for row in rows], num_kept)
        hidden = rows[0].embeddings.shape[1]
        inputs = rows[0].embeddings.new_zeros(len(rows), num_new, hidden)
        mask = torch.zeros(len(rows), num_kept + num_new, dtype=torch.long, device=self.device)
        positions = torch.zeros(len(rows), num_new, dtype=torch.long, device=self.device)
        for index, row in enumerate(rows):
            start = num_new - new[index]
            inputs[index, start:] = row.embeddings
            mask[index, num_kept - kept[index] : num_kept] = 1
            mask[index, num_kept + start :] = 1
            positions[index, start:] = kept[index] + torch.arange(new[index], device=self.device)
        output = self._model(
            inputs_embeds=inputs,
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.num_tokens += sum(new)
        lengths = torch.tensor([a + b for a, b in zip(kept, new, strict=True)], device=self.device)
        return Prefilled(output.logits[:, -1].float(), cache, mask, lengths, num_kept, num_new)

    def decode(
        self, prefilled: Prefilled, rows: Sequence[Row], *, sink: TokenSink | None = None
    ) -> list[Decoded]:
        """Write the answers; rows that are done leave the batch."""
        answers = [Decoded() for _ in rows]
        choosers = [_Chooser(row) for row in rows]
        alive = list(range(len(rows)))
        logits, mask, lengths = prefilled.logits, prefilled.mask, prefilled.lengths
        while True:
            stay: list[int] = []
            tokens, logprobs = _choose(logits, [choosers[row] for row in alive])
            for place, row in enumerate(alive):
                answer, token = answers[row], tokens[place]
                answer.sum_logprob += logprobs[place]
                if token in self._end_tokens:
                    answer.has_ended = True
                    continue
                answer.tokens.append(token)
                if sink is not None:
                    sink(row, token)
                if len(answer.tokens) < rows[row].max_new_tokens:
                    stay.append(place)
            if not stay:
                return answers
            if len(stay) < len(alive):
                index = torch.tensor(stay, device=self.device)
                prefilled.cache.batch_select_indices(index)
                mask, lengths = mask[index], lengths[index]
                alive = [alive[place] for place in stay]
            step = torch.tensor([[tokens[place]] for place in stay], device=self.device)
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
            output = self._model(
                input_ids=step,
                attention_mask=mask,
                position_ids=lengths[:, None],
                cache=prefilled.cache,
                use_cache=True,
            )
            self.num_tokens += len(alive)
            lengths = lengths + 1
            logits = output.logits[:, -1].float()

    def score(self, prompt: KeptKeys, first: Tensor, answers: Sequence[Sequence[int]]) -> Tensor:
        """Return the log probability of each of `answers` after `prompt`, shape (len(answers),).

        Args:
            first: Logits of the token that follows the prompt, shape (vocabulary,).
            answers: Token ids, at least two in each.
        """
        longest = max(len(answer) for answer in answers) - 1
        cache = self._batch_kept([prompt] * len(answers), prompt.length)
        ids = torch.zeros(len(answers), longest, dtype=torch.long, device=self.device)
        for index, answer in enumerate(answers):
            ids[index, : len(answer) - 1] = torch.tensor(answer[:-1])
        # Padding is on the right, where nothing real looks at it.
        output = self._model(input_ids=ids, cache=cache, use_cache=True)
        self.num_tokens += ids.numel()
        after = torch.log_softmax(output.logits.float(), dim=-1)
        start = torch.log_softmax(first, dim=-1)
        scores = [
            start[answer[0]] + after[index, torch.arange(len(answer) - 1), list(answer[1:])].sum()
            for index, answer in enumerate(answers)
        ]
        return torch.stack(scores)

    def _batch_kept(self, kept: Sequence[KeptKeys], length: int) -> DynamicCache:
        cache = DynamicCache(config=self._model.config.get_text_config(decoder=True))
        if not length:
            return cache
        filled = next(keys for keys in kept if keys.length)
        for index, (some_keys, _) in enumerate(filled.layers):
            shape = (len(kept), some_keys.shape[0], length, some_keys.shape[2])
            keys, values = some_keys.new_zeros(shape), some_keys.new_zeros(shape)
            for row, held in enumerate(kept):
                if held.length:
                    keys[row, :, length - held.length :] = held.layers[index][0]
                    values[row, :, length - held.length :] = held.layers[index][1]
            cache.update(keys, values, index)
        return cache


class _Chooser:
    """How one row chooses its next token."""

    def __init__(self, row: Row) -> None:
        self.temperature = row.temperature
        self._generator = torch.Generator().manual_seed(row.seed) if row.temperature > 0 else None

    def sample(self, logits: Tensor) -> int:
        """Draw from the row's own generator, on the CPU, so that devices and neighbours agree."""
        probabilities = torch.softmax(logits.cpu() / self.temperature, dim=-1)
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


def _choose(logits: Tensor, choosers: Sequence[_Chooser]) -> tuple[list[int], list[float]]:
    """Return each row's next token and its log probability at temperature 1."""
    chosen = logits.argmax(dim=-1)
    for place, chooser in enumerate(choosers):
        if chooser.temperature > 0:
            chosen[place] = chooser.sample(logits[place])
    picked = logits.gather(-1, chosen[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
    return chosen.tolist(), picked.tolist()
