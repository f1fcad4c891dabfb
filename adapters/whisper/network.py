"""The forward passes: encoder as `transformers` runs it, decoder one token at a time.

`transformers` loads and owns the weights. Its decoder is not called: rows here stand at different
positions, leave the batch when they are done, and read keys and values from buffers that are
never copied whole. The arithmetic is that of `WhisperDecoderLayer`; a test compares them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention
from transformers import WhisperForConditionalGeneration
from transformers.utils import logging as transformers_logging

from adapters.whisper.linear import Linear, make_linear
from core import errors

_ENCODER_BATCH = 16


@dataclass(frozen=True, slots=True)
class Precision:
    """How numbers are stored.

    Attributes:
        compute: What activations, norms and attention are computed in.
        cross: What the keys and values of the encoder's output are stored in.
        int8: Whether the large matrices are 8-bit integers.
    """

    compute: torch.dtype
    cross: torch.dtype
    int8: bool = False


@dataclass(slots=True)
class _Attention:
    query_key_value: Linear
    out: Linear


@dataclass(slots=True)
class _Cross:
    query: Linear
    key_value: Linear
    out: Linear


@dataclass(slots=True)
class _Layer:
    self_norm: torch.nn.LayerNorm
    self_attention: _Attention
    cross_norm: torch.nn.LayerNorm
    cross_attention: _Cross
    final_norm: torch.nn.LayerNorm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class _Place:
    """Where tokens of a pass stand.

    Attributes:
        index: The positions: the same slice for all rows, or one a row, shape (num_rows,).
        length: How many positions the longest row looks at.
        mask: Which of them each row may see, or None if all (as far as causality allows).
        watch: Collects what chosen heads look at, or None.
    """

    index: torch.Tensor | slice
    length: int
    mask: torch.Tensor | None = None
    watch: "_Watch | None" = None


@dataclass(slots=True)
class _Watch:
    """Cross-attention scores, before the softmax, of `heads` (layer -> its heads)."""

    heads: Mapping[int, Sequence[int]]
    scores: list[torch.Tensor] = field(default_factory=list)

    def look(self, number: int, query: torch.Tensor, keys: torch.Tensor) -> None:
        """Keep layer `number`'s scores for query and keys of (rows, heads, positions, width)."""
        heads = list(self.heads.get(number, ()))
        if heads:
            self.scores.append(query[:, heads].float() @ keys[:, heads].float().transpose(2, 3))


class DecoderCache:
    """Keys and values of a batch of rows.

    Shapes: self (num_layers, 2, num_rows, num_heads, num_positions, head_dim), cross the same with
    the encoder's 1500 positions.
    """

    def __init__(self, own: torch.Tensor, cross: torch.Tensor) -> None:
        self._own = own
        self._cross = cross
        self.num_rows = own.shape[2]

    def own(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the self-attention's keys and values of the rows that are left."""
        part = self._own[layer, :, : self.num_rows]
        return part[0], part[1]

    def cross(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cross-attention's keys and values of the rows that are left."""
        part = self._cross[layer, :, : self.num_rows]
        return part[0], part[1]

    def drop(self, row: int) -> None:
        """Forget `row`; the last row moves to its number."""
        last = self.num_rows - 1
        if row != last:
            self._own[:, :, row] = self._own[:, :, last]
            self._cross[:, :, row] = self._cross[:, :, last]
        self.num_rows = last


class Network:
    """A loaded Whisper."""

    def __init__(self, model: Any, *, device: torch.device, precision: Precision) -> None:  # noqa: ANN401
        # transformers' annotations are wrong in places, so its objects are Any here.
        config = model.config
        self.device = device
        self.precision = precision
        self.vocab_size = int(config.vocab_size)
        self.num_bins = int(config.num_mel_bins)
        self.max_positions = int(config.max_target_positions)
        self._num_heads = int(config.decoder_attention_heads)
        self._head_dim = int(config.d_model) // self._num_heads
        self._encoder = model.model.encoder
        decoder = model.model.decoder
        self._embed: torch.Tensor = decoder.embed_tokens.weight
        self._positions: torch.Tensor = decoder.embed_positions.weight
        self._norm: torch.nn.LayerNorm = decoder.layer_norm
        self._act = decoder.layers[0].activation_fn
        self._layers = [self._take_layer(layer) for layer in decoder.layers]
        self._project = make_linear([model.proj_out], int8=precision.int8)
        if precision.int8:
            _quantise_encoder(self._encoder)

    @classmethod
    def from_folder(cls, folder: Path, *, device: torch.device, precision: Precision) -> "Network":
        """Load the weights in `folder`.

        Raises:
            CheckpointInvalid: They do not make a Whisper.
        """
        # Thousands of lines in a worker's log otherwise.
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            model: Any = WhisperForConditionalGeneration.from_pretrained(
                folder, dtype=precision.compute, attn_implementation="sdpa", local_files_only=True
            )
        except (OSError, ValueError, RuntimeError, KeyError) as exc:
            raise errors.CheckpointInvalid(
                f"{folder} cannot be loaded as a Whisper: {exc}"
            ) from exc
        return cls(model.eval().to(device), device=device, precision=precision)

    def _take_layer(self, layer: Any) -> _Layer:  # noqa: ANN401
        int8 = self.precision.int8
        own, cross = layer.self_attn, layer.encoder_attn
        return _Layer(
            self_norm=layer.self_attn_layer_norm,
            self_attention=_Attention(
                make_linear([own.q_proj, own.k_proj, own.v_proj], int8=int8),
                make_linear([own.out_proj], int8=int8),
            ),
            cross_norm=layer.encoder_attn_layer_norm,
            cross_attention=_Cross(
                make_linear([cross.q_proj], int8=int8),
                make_linear([cross.k_proj, cross.v_proj], int8=int8),
                make_linear([cross.out_proj], int8=int8),
            ),
            final_norm=layer.final_layer_norm,
            up=make_linear([layer.fc1], int8=int8),
            down=make_linear([layer.fc2], int8=int8),
        )

    def encode(self, features: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the encoder's output, shape (1500, width), for each window's features.

        On the CPU one window at a time is fastest (measured: the caches hold it).
        """
        size = 1 if self.device.type == "cpu" else _ENCODER_BATCH
        encoded: list[torch.Tensor] = []
        for first in range(0, len(features), size):
            batch = torch.stack(list(features[first : first + size])).to(self.precision.compute)
            encoded.extend(self._encoder(batch).last_hidden_state)
        return encoded

    def make_cache(self, encoded: Sequence[torch.Tensor]) -> DecoderCache:
        """Return an empty cache for rows that listen to these encoder outputs."""
        shape = (len(self._layers), 2, len(encoded), self._num_heads)
        own = torch.empty(
            (*shape, self.max_positions, self._head_dim),
            dtype=self.precision.compute,
            device=self.device,
        )
        cross = torch.empty(
            (*shape, encoded[0].shape[0], self._head_dim),
            dtype=self.precision.cross,
            device=self.device,
        )
        for row, hidden in enumerate(encoded):
            for number, layer in enumerate(self._layers):
                both = layer.cross_attention.key_value(hidden)
                both = both.view(hidden.shape[0], 2, self._num_heads, self._head_dim)
                cross[number, :, row] = both.permute(1, 2, 0, 3)
        return DecoderCache(own, cross)

    def prefill(
        self, cache: DecoderCache, prefixes: Sequence[Sequence[int]], wanted: torch.Tensor
    ) -> torch.Tensor:
        """Run all rows' prefixes, of any lengths, into `cache`.

        Args:
            wanted: Shape (num_rows, num_wanted): positions whose logits are returned.

        Returns:
            Shape (num_rows, num_wanted, vocab_size), float32.
        """
        hidden = self._run_all(cache, prefixes, watch=None)
        rows = torch.arange(len(prefixes), device=self.device)[:, None]
        return self._logits(hidden[rows, wanted.to(self.device)])

    def align(
        self, encoded: torch.Tensor, tokens: Sequence[int], heads: Sequence[tuple[int, int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read a finished text once more and watch where `heads` (layer, head) look.

        Returns:
            Scores before the softmax, shape (num_heads, num_tokens, 1500), and the logits at
            every token, shape (num_tokens, vocab_size); both float32.
        """
        by_layer = defaultdict(list)
        for layer, head in heads:
            by_layer[layer].append(head)
        watch = _Watch(by_layer)
        hidden = self._run_all(self.make_cache([encoded]), [tokens], watch=watch)
        return torch.cat(watch.scores, dim=1)[0], self._logits(hidden[0])

    @property
    def late_heads(self) -> list[tuple[int, int]]:
        """All heads of the later half of the layers: what aligns where nothing better is known."""
        layers = range(len(self._layers) // 2, len(self._layers))
        return [(layer, head) for layer in layers for head in range(self._num_heads)]

    def _run_all(
        self, cache: DecoderCache, rows: Sequence[Sequence[int]], *, watch: "_Watch | None"
    ) -> torch.Tensor:
        """Return the last layer's output, shape (num_rows, longest row, width)."""
        length = max(len(row) for row in rows)
        # Padding on the right: causality hides it from the prefix, and later tokens overwrite it.
        tokens = torch.zeros((len(rows), length), dtype=torch.long)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = torch.tensor(row)
        hidden = F.embedding(tokens.to(self.device), self._embed) + self._positions[:length]
        place = _Place(slice(0, length), length, watch=watch)
        for number in range(len(self._layers)):
            hidden = self._run_layer(number, hidden, cache, place)
        return hidden

    def step(
        self, cache: DecoderCache, tokens: Sequence[int], positions: Sequence[int]
    ) -> torch.Tensor:
        """Run one token a row, each at its own position; return logits (num_rows, vocab_size)."""
        where = torch.tensor(positions, device=self.device)
        hidden = F.embedding(torch.tensor(tokens, device=self.device), self._embed)
        hidden = (hidden + self._positions[where])[:, None]
        length = max(positions) + 1
        mask = None
        if min(positions) + 1 < length:
            mask = torch.arange(length, device=self.device)[None] <= where[:, None]
            mask = mask[:, None, None]
        place = _Place(where, length, mask)
        for number in range(len(self._layers)):
            hidden = self._run_layer(number, hidden, cache, place)
        return self._logits(hidden[:, 0])

    def _run_layer(
        self, number: int, hidden: torch.Tensor, cache: DecoderCache, place: _Place
    ) -> torch.Tensor:
        """Run one layer on (num_rows, num_tokens, width), storing keys and values in `cache`."""
        layer = self._layers[number]
        num_rows, num_tokens, _width = hidden.shape
        heads = (num_rows, num_tokens, self._num_heads, self._head_dim)
        scale = self._head_dim**-0.5
        normed = layer.self_norm(hidden)
        query, key, value = layer.self_attention.query_key_value(normed).chunk(3, dim=-1)
        keys, values = cache.own(number)
        if isinstance(place.index, slice):
            keys[:, :, place.index] = key.reshape(heads).transpose(1, 2)
            values[:, :, place.index] = value.reshape(heads).transpose(1, 2)
        else:
            rows = torch.arange(num_rows, device=self.device)
            keys[rows, :, place.index] = key.reshape(num_rows, self._num_heads, self._head_dim)
            values[rows, :, place.index] = value.reshape(num_rows, self._num_heads, self._head_dim)
        mixed = F.scaled_dot_product_attention(
            (query * scale).reshape(heads).transpose(1, 2),
            keys[:, :, : place.length],
            values[:, :, : place.length],
            attn_mask=place.mask,
            is_causal=isinstance(place.index, slice) and place.length > 1,
            scale=1.0,
        )
        hidden = hidden + layer.self_attention.out(mixed.transpose(1, 2).reshape(hidden.shape))

        query = layer.cross_attention.query(layer.cross_norm(hidden)) * scale
        query = query.reshape(heads).transpose(1, 2)
        keys, values = cache.cross(number)
        if place.watch is not None:
            place.watch.look(number, query, keys)
        mixed = F.scaled_dot_product_attention(query.to(keys.dtype), keys, values, scale=1.0)
        mixed = mixed.transpose(1, 2).reshape(hidden.shape).to(hidden.dtype)
        hidden = hidden + layer.cross_attention.out(mixed)

        return hidden + layer.down(self._act(layer.up(layer.final_norm(hidden))))

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._project(self._norm(hidden))
        return logits.float()


def _quantise_encoder(encoder: Any) -> None:  # noqa: ANN401
    for layer in encoder.layers:
        attention = layer.self_attn
        for owner, names in (
            (attention, ("q_proj", "k_proj", "v_proj", "out_proj")),
            (layer, ("fc1", "fc2")),
        ):
            for name in names:
                setattr(owner, name, make_linear([getattr(owner, name)], int8=True))
