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
    """Keys and values of one row's positions so far.

    Attributes:
        buffer: Shape (layers, 2, heads, length, head_dim): keys, then values; None for nothing.
    """

    buffer: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of positions."""
        return 0 if self.buffer is None else self.buffer.shape[3]

    def crop(self, length: int) -> "KeptKeys":
        """Return the first `length` positions, as a view."""
        return KeptKeys(None if self.buffer is None else self.buffer[:, :, :, :length])

    def clone(self) -> "KeptKeys":
        """Return a copy that holds no more memory than its own."""
        return KeptKeys(None if self.buffer is None else self.buffer.clone())


class RowKeys:
    """Keys and values of the rows of a batch; a row's position is its column.

    All layers are in one tensor, as copying a row is one operation then, whatever their number.

    Attributes:
        lengths: Positions of each row; columns beyond are of no meaning.
        layers: (keys, values) of each layer, each of shape (rows, heads, room, head_dim), as views.
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
        self._hold(like.new_zeros(config.num_hidden_layers, 2, *shape))

    def fill(self, row: int, kept: KeptKeys) -> None:
        """Copy what is kept to the beginning of a row."""
        if kept.buffer is not None:
            self._buffer[:, :, row, :, : kept.length] = kept.buffer

    def row(self, row: int) -> KeptKeys:
        """Return a row's keys, as a view."""
        return KeptKeys(self._buffer[:, :, row, :, : self.lengths[row]])

    def extend(self) -> None:
        """Make each row one position longer."""
        self.lengths = [length + 1 for length in self.lengths]
        if max(self.lengths) > self._buffer.shape[4]:
            self._hold(torch.nn.functional.pad(self._buffer, (0, 0, 0, _ROOM)))

    def drop(self, row: int) -> None:
        """Take a row out; the last takes its place."""
        last = len(self.lengths) - 1
        length = self.lengths.pop()
        if row < last:
            self.lengths[row] = length
            self._buffer[:, :, row, :, :length] = self._buffer[:, :, last, :, :length]
        if last:
            self._hold(self._buffer[:, :, :last])

    def _hold(self, buffer: Tensor) -> None:
        self._buffer = buffer
        self.layers = [layer.unbind() for layer in buffer.unbind()]
