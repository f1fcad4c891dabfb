"""Keys and values of rows of different length, in one buffer that answers are written into."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_ROOM = 64
"""Positions a buffer grows by when its longest row is full: growing copies all of it."""


@dataclass(frozen=True, slots=True)
class KeptKeys:
    """Keys and values of one row's positions so far, layer by layer.

    Attributes:
        layers: (keys, values), each of shape (heads, length, head_dim).
    """

    layers: tuple[tuple[Tensor, Tensor], ...] = ()

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.layers[0][0].shape[1] if self.layers else 0

    def crop(self, length: int) -> "KeptKeys":
        """Return the first `length` positions, as views."""
        return KeptKeys(tuple((k[:, :length], v[:, :length]) for k, v in self.layers))

    def clone(self) -> "KeptKeys":
        """Return a copy that holds no more memory than its own."""
        return KeptKeys(tuple((k.clone(), v.clone()) for k, v in self.layers))


class RowKeys:
    """Keys and values of the rows of a batch; a row's position is its column.

    Attributes:
        lengths: Positions of each row; columns beyond are of no meaning.
        layers: (keys, values) of each layer, each of shape (rows, heads, room, head_dim).
    """

    def __init__(self, lengths: Sequence[int], config: Any, like: Tensor) -> None:  # noqa: ANN401
        """Make room for rows of `lengths` and some more.

        Args:
            config: The text model's.
            like: Says where and in which number format.
        """
        head_dim = getattr(config, "head_dim", None)
        head_dim = head_dim or config.hidden_size // config.num_attention_heads
        shape = (len(lengths), config.num_key_value_heads, max(lengths) + _ROOM, head_dim)
        self.lengths = list(lengths)
        # Zeros: what lies beyond a row's length is masked, and must be finite for that.
        self.layers = [
            (like.new_zeros(shape), like.new_zeros(shape)) for _ in range(config.num_hidden_layers)
        ]

    def fill(self, row: int, kept: KeptKeys) -> None:
        """Copy what is kept to the beginning of a row."""
        for (keys, values), (old_keys, old_values) in zip(self.layers, kept.layers, strict=False):
            keys[row, :, : kept.length] = old_keys
            values[row, :, : kept.length] = old_values

    def row(self, row: int) -> KeptKeys:
        """Return a row's keys, as views."""
        length = self.lengths[row]
        return KeptKeys(tuple((k[row, :, :length], v[row, :, :length]) for k, v in self.layers))

    def extend(self) -> None:
        """Make each row one position longer."""
        self.lengths = [length + 1 for length in self.lengths]
        room = self.layers[0][0].shape[2]
        if max(self.lengths) > room:
            self.layers = [(_widen(keys), _widen(values)) for keys, values in self.layers]

    def drop(self, row: int) -> None:
        """Take a row out; the last takes its place."""
        last = len(self.lengths) - 1
        length = self.lengths.pop()
        if row < last:
            self.lengths[row] = length
        for number, (keys, values) in enumerate(self.layers):
            if row < last:
                keys[row, :, :length] = keys[last, :, :length]
                values[row, :, :length] = values[last, :, :length]
            self.layers[number] = keys[:last], values[:last]


def _widen(buffer: Tensor) -> Tensor:
    return torch.nn.functional.pad(buffer, (0, 0, 0, _ROOM))
