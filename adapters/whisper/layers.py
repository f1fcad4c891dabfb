"""One layer of the encoder; one of the decoder for rows at different positions, and what it keeps.

The arithmetic is that of `transformers`' `WhisperEncoderLayer` and `WhisperDecoderLayer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from adapters.whisper.linear import Storage, make_linear


@dataclass(frozen=True, slots=True)
class Place:
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
    watch: "Watch | None" = None


@dataclass(slots=True)
class Watch:
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
    the encoder's positions of the longest row, 1500 at most; shorter rows need a mask.
    """

    def __init__(
        self, own: torch.Tensor, cross: torch.Tensor, cross_mask: torch.Tensor | None = None
    ) -> None:
        self._own = own
        self._cross = cross
        self._cross_mask = cross_mask
        self.num_rows = own.shape[2]

    def own(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the self-attention's keys and values of the rows that are left."""
        part = self._own[layer, :, : self.num_rows]
        return part[0], part[1]

    def cross(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cross-attention's keys and values of the rows that are left."""
        part = self._cross[layer, :, : self.num_rows]
        return part[0], part[1]

    @property
    def cross_mask(self) -> torch.Tensor | None:
        """What to add to cross-attention's scores of the rows that are left; None for nothing."""
        return None if self._cross_mask is None else self._cross_mask[: self.num_rows]

    def drop(self, row: int) -> None:
        """Forget `row`; the last row moves to its number."""
        last = self.num_rows - 1
        if row != last:
            self._own[:, :, row] = self._own[:, :, last]
            self._cross[:, :, row] = self._cross[:, :, last]
            if self._cross_mask is not None:
                self._cross_mask[row] = self._cross_mask[last]
        self.num_rows = last


class EncoderLayer:
    """Takes the weights of a `WhisperEncoderLayer`.

    With 8-bit weights only the feed-forward products use them, two thirds of all multiplications:
    the attention's alone would cost five times as much accuracy (benchmarks/README.md).
    """

    def __init__(self, layer: Any, *, feed_forward: Storage) -> None:  # noqa: ANN401
        own = layer.self_attn
        self._heads = (int(own.num_heads), int(own.head_dim))
        self._act = layer.activation_fn
        self._own_norm = layer.self_attn_layer_norm
        self._query_key_value = make_linear([own.q_proj, own.k_proj, own.v_proj], Storage.PLAIN)
        self._out = make_linear([own.out_proj], Storage.PLAIN)
        self._final_norm = layer.final_layer_norm
        self._up = make_linear([layer.fc1], feed_forward)
        self._down = make_linear([layer.fc2], feed_forward)

    def run(self, hidden: torch.Tensor) -> torch.Tensor:
        """Run on (num_windows, num_positions, width)."""
        num_windows, length, _width = hidden.shape
        mixed = self._query_key_value(self._own_norm(hidden))
        # (3, windows, heads, positions, head_dim), without a copy.
        query, key, value = mixed.view(num_windows, length, 3, *self._heads).permute(2, 0, 3, 1, 4)
        query = query * self._heads[1] ** -0.5
        mixed = F.scaled_dot_product_attention(query, key, value, scale=1.0)
        hidden = hidden + self._out(mixed.transpose(1, 2).reshape(hidden.shape))
        fed: torch.Tensor = self._down(self._act(self._up(self._final_norm(hidden))))
        hidden = hidden + fed
        if hidden.dtype == torch.float16:  # as transformers does: large checkpoints overflow
            limit = torch.finfo(torch.float16).max - 1000
            hidden = hidden.clamp(-limit, limit)
        return hidden


class DecoderLayer:
    """Takes the weights of a `WhisperDecoderLayer`; queries, keys and values in one product."""

    def __init__(self, layer: Any, *, number: int, storage: Storage) -> None:  # noqa: ANN401
        own, cross = layer.self_attn, layer.encoder_attn
        self._number = number
        self._num_heads = int(own.num_heads)
        self._head_dim = int(own.head_dim)
        self._act = layer.activation_fn
        self._own_norm = layer.self_attn_layer_norm
        self._query_key_value = make_linear([own.q_proj, own.k_proj, own.v_proj], storage)
        self._own_out = make_linear([own.out_proj], storage)
        self._cross_norm = layer.encoder_attn_layer_norm
        self._cross_query = make_linear([cross.q_proj], storage)
        self.cross_parts = (cross.k_proj, cross.v_proj)  # of the encoder's output: once a window
        self._cross_out = make_linear([cross.out_proj], storage)
        self._final_norm = layer.final_layer_norm
        self._up = make_linear([layer.fc1], storage)
        self._down = make_linear([layer.fc2], storage)

    def run(self, hidden: torch.Tensor, cache: DecoderCache, place: Place) -> torch.Tensor:
        """Run on (num_rows, num_tokens, width), storing keys and values in `cache`."""
        num_rows, num_tokens, _width = hidden.shape
        heads = (num_rows, num_tokens, self._num_heads, self._head_dim)
        scale = self._head_dim**-0.5
        normed = self._own_norm(hidden)
        query, key, value = self._query_key_value(normed).chunk(3, dim=-1)
        keys, values = cache.own(self._number)
        if isinstance(place.index, slice):
            keys[:, :, place.index] = key.reshape(heads).transpose(1, 2)
            values[:, :, place.index] = value.reshape(heads).transpose(1, 2)
        else:
            rows = torch.arange(num_rows, device=hidden.device)
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
        hidden = hidden + self._own_out(mixed.transpose(1, 2).reshape(hidden.shape))

        query = self._cross_query(self._cross_norm(hidden)) * scale
        query = query.reshape(heads).transpose(1, 2)
        keys, values = cache.cross(self._number)
        if place.watch is not None:
            place.watch.look(self._number, query, keys)
        mixed = F.scaled_dot_product_attention(
            query.to(keys.dtype), keys, values, attn_mask=cache.cross_mask, scale=1.0
        )
        mixed = mixed.transpose(1, 2).reshape(hidden.shape).to(hidden.dtype)
        hidden = hidden + self._cross_out(mixed)

        fed: torch.Tensor = self._down(self._act(self._up(self._final_norm(hidden))))
        return hidden + fed
