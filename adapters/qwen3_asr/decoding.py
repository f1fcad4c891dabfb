"""Greedy decoding of prompts of different lengths, with or without keys kept from before."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

from adapters.qwen3_asr.attention import Plan, ReadPlan, WritePlan, as_mask, install
from adapters.qwen3_asr.keys import KeptKeys, RowKeys
from adapters.qwen3_asr.loops import LoopWatch
from adapters.qwen3_asr.prompts import NoSpeech

MAX_NO_SPEECH_PROB = 0.5
"""Above, it is likelier than not that nobody speaks, and unforced the model would say so. With a
small checkpoint it was 0.018 at most over 464 clips of speech and 0.34 over their first seconds
alone, and 0.99 at least over noise and silence."""

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
        loops: Has read what the answer goes on from; the answer is given up once it says the same
            three times in a row. None lets it.
        no_speech: Where the prompt passes over whether anybody speaks. If the model holds it for
            likelier than not that nobody does, the answer is empty; None does not ask.
    """

    embeddings: Tensor
    kept: KeptKeys = field(default_factory=KeptKeys)
    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    loops: LoopWatch | None = None
    no_speech: NoSpeech | None = None


@dataclass(frozen=True, slots=True)
class ReadPrompts:
    """Prompts the model has read.

    Attributes:
        keys: Of all their positions, kept ones included.
        logits: Of the tokens that follow, shape (rows, vocabulary), float32.
        no_speech: Probability that nobody speaks, for rows that ask, else 0.
    """

    keys: RowKeys
    logits: Tensor
    no_speech: list[float]


@dataclass(slots=True)
class Decoded:
    """One row's answer.

    Attributes:
        tokens: Without the end token.
        logprobs: Natural log of each token's probability.
        sum_logprob: Natural log of the answer's probability, end token included.
        has_ended: Whether the model ended by itself; otherwise the token cap did, or a loop.
        loop_end: If a loop did: where, counted from what its row's `loops` has read first, what
            was said three times had been said once.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sum_logprob: float = 0.0
    has_ended: bool = False
    loop_end: int | None = None


class Decoder:
    """The language model of a `Qwen3ASRForConditionalGeneration`.

    Attributes:
        num_tokens: Positions computed since loading (prompts and answers, without padding).
    """

    def __init__(self, model: Any, end_tokens: Sequence[int]) -> None:  # noqa: ANN401
        self.num_tokens = 0
        self._model = model
        self._text_model = model.model.language_model
        install(self._text_model)
        if model.device.type == "cpu" and model.dtype is torch.float32:
            _lay_out_for_few_rows(self._text_model.layers)
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

    def read(self, rows: Sequence[Row]) -> ReadPrompts:
        """Read every row's prompt, all in one forward pass and none padded."""
        keys, packed, plan = self._pack(rows)
        hidden = self._read_to_last_layer(packed, plan)
        logits = self._finish(hidden, plan, keys, keys.lengths)
        no_speech = [0.0] * len(rows)
        asking = {at: row.no_speech for at, row in enumerate(rows) if row.no_speech is not None}
        if asking:
            lengths = list(keys.lengths)
            for at, place in asking.items():
                lengths[at] -= place.back
            odds = torch.softmax(self._finish(hidden, plan, keys, lengths), dim=-1)
            for at, place in asking.items():
                no_speech[at] = float(odds[at, place.token])
        return ReadPrompts(keys, logits, no_speech)

    def answer(self, rows: Sequence[Row], *, sink: TokenSink | None = None) -> list[Decoded]:
        """Read prompts and write their answers."""
        return self.write(self.read(rows), rows, sink=sink)

    def write(
        self, prompts: ReadPrompts, rows: Sequence[Row], *, sink: TokenSink | None = None
    ) -> list[Decoded]:
        """Write the answers to prompts that were read; rows that are done leave at once.

        The keys of `prompts` are written on and are of no use afterwards.
        """
        writers = [_Writer(at, row, self._end_tokens, sink) for at, row in enumerate(rows)]
        going = list(writers)
        for writer, probability in zip(writers, prompts.no_speech, strict=True):
            if probability > MAX_NO_SPEECH_PROB:
                writer.end_without_speech(probability)
        keys, logits = prompts.keys, prompts.logits
        while True:
            tokens, logprobs = _choose(logits, going)
            # From the last to the first: the last takes the place of one that leaves.
            for place in reversed(range(len(going))):
                if going[place].is_going:
                    going[place].take(tokens[place], logprobs[place])
                if not going[place].is_going:
                    keys.drop(place)
                    going[place], tokens[place] = going[-1], tokens[-1]
                    going.pop(), tokens.pop()
            if not going:
                return [writer.answer for writer in writers]
            keys.extend()
            plan = WritePlan(keys, self.device)
            hidden = self._run(self.embed(tokens)[:, None], plan, plan.positions)
            self.num_tokens += len(going)
            logits = self._model.lm_head(hidden[:, 0]).float()

    def score(self, kept: KeptKeys, answers: Sequence[Sequence[int]], logits: Tensor) -> Tensor:
        """Return the log probability of each of `answers` after a prompt, shape (len(answers),).

        Args:
            kept: The prompt's keys.
            answers: Token ids, at least two in each.
            logits: Those that follow the prompt.
        """
        rows = [
            Row(embeddings=self.embed(answer[:-1]), kept=kept, max_new_tokens=0)
            for answer in answers
        ]
        _, packed, plan = self._pack(rows)
        hidden = self._run(packed[None], plan, plan.positions)[0]
        after = torch.log_softmax(self._model.lm_head(hidden).float(), dim=-1)
        start = torch.log_softmax(logits, dim=-1)
        scores = [
            start[answer[0]] + after[torch.arange(first, last), list(answer[1:])].sum()
            for answer, (first, last) in zip(answers, plan.spans, strict=True)
        ]
        return torch.stack(scores)

    def _pack(self, rows: Sequence[Row]) -> tuple[RowKeys, Tensor, ReadPlan]:
        """Return the rows' keys, their embeddings end to end, and how those attend."""
        num_new = [len(row.embeddings) for row in rows]
        lengths = [row.kept.length + new for row, new in zip(rows, num_new, strict=True)]
        packed = torch.cat([row.embeddings for row in rows])
        keys = RowKeys(lengths, self._text_model.config, packed)
        for number, row in enumerate(rows):
            keys.fill(number, row.kept)
        self.num_tokens += len(packed)
        return keys, packed, ReadPlan(keys, num_new, self.device)

    def _read_to_last_layer(self, packed: Tensor, plan: ReadPlan) -> Tensor:
        """Return what the text model's last layer is given, shape (1, positions, hidden).

        Of all positions that layer leaves keys and values, which are kept; `_finish` does the rest.
        """
        model = self._text_model
        hidden: Tensor = packed[None]
        angles = model.rotary_emb(hidden, plan.positions)
        *layers, last = model.layers
        for layer in layers:
            hidden = layer(hidden, attention_mask=plan, position_embeddings=angles)
        attention, normed = last.self_attn, last.input_layernorm(hidden)
        split = (-1, attention.head_dim)
        key = attention.k_norm(attention.k_proj(normed).unflatten(2, split)).transpose(1, 2)
        _, key = apply_rotary_pos_emb(key, key, *angles)
        value = attention.v_proj(normed).unflatten(2, split).transpose(1, 2)
        plan.keep(attention.layer_idx, key, value)
        return hidden

    def _finish(
        self, hidden: Tensor, plan: ReadPlan, keys: RowKeys, lengths: Sequence[int]
    ) -> Tensor:
        """Return the logits after the first `lengths` positions of each row, float32.

        Args:
            hidden: From `_read_to_last_layer`; those positions are among the new ones.
        """
        model = self._text_model
        end = WritePlan(keys, self.device, lengths=lengths)
        at = [
            stop - 1 - (whole - length)
            for (_, stop), whole, length in zip(plan.spans, keys.lengths, lengths, strict=True)
        ]
        looked_at = hidden[0, at][:, None]
        angles = model.rotary_emb(looked_at, end.positions)
        output = model.layers[-1](looked_at, attention_mask=end, position_embeddings=angles)
        logits: Tensor = self._model.lm_head(model.norm(output)[:, 0]).float()
        return logits

    def _run(self, embeddings: Tensor, plan: Plan, positions: Tensor) -> Tensor:
        """Return the last layer's output for `embeddings`, shape (rows, positions, hidden)."""
        output = self._text_model(
            inputs_embeds=embeddings,
            attention_mask=as_mask(plan),
            position_ids=positions,
            use_cache=False,
        )
        hidden: Tensor = output.last_hidden_state
        return hidden


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
        self._loops = row.loops
        self._generator = torch.Generator().manual_seed(row.seed) if row.temperature > 0 else None

    def end_without_speech(self, probability: float) -> None:
        """Give the empty answer."""
        self.answer.sum_logprob = math.log(probability)
        self.answer.has_ended = True
        self.is_going = False

    def take(self, token: int, logprob: float) -> None:
        """Add the next token."""
        self.answer.sum_logprob += logprob
        self.answer.has_ended = token in self._end_tokens
        if not self.answer.has_ended:
            self.answer.tokens.append(token)
            self.answer.logprobs.append(logprob)
            if self._sink is not None:
                self._sink(self._index, token)
            if self._loops is not None:
                self._loops.take(token)
                self.answer.loop_end = self._loops.first_end
        self.is_going = (
            not self.answer.has_ended
            and self.answer.loop_end is None
            and len(self.answer.tokens) < self._cap
        )

    def sample(self, logits: Tensor) -> int:
        """Draw from the row's own generator, on the CPU, so that devices and neighbours agree."""
        probabilities = torch.softmax(logits.cpu() / self.temperature, dim=-1)
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


def _choose(logits: Tensor, writers: Sequence[_Writer]) -> tuple[list[int], list[float]]:
    """Return each row's next token and its log probability at temperature 1."""
    chosen = logits.argmax(dim=-1)
    for place, writer in enumerate(writers):
        if writer.temperature > 0:
            chosen[place] = writer.sample(logits[place])
    picked = logits.gather(-1, chosen[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
    return chosen.tolist(), picked.tolist()


def _lay_out_for_few_rows(layers: torch.nn.Module) -> None:
    """Lay out weights so that a few positions at a time are multiplied faster on CPUs.

    As [inputs, outputs] they need not be turned over for it: eight rows take 0.7 of the time, one
    and hundreds take the same. In bfloat16 it is slower. Values and shapes stay.
    """
    for layer in layers.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data = layer.weight.data.t().contiguous().t()
