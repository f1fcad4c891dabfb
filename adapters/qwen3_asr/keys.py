"""Keys and values of rows of different length: kept apart, batched when the model runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache


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


def batch_keys(rows: Sequence[KeptKeys], config: Any) -> DynamicCache:  # noqa: ANN401
    """Return a cache of `rows`, padded with zeros on the left to the longest.

    Args:
        config: The text model's.
    """
    cache = DynamicCache(config=config)
    longest = max(row.length for row in rows)
    if not longest:
        return cache
    filled = next(row for row in rows if row.length)
    for layer, (some, _) in enumerate(filled.layers):
        shape = (len(rows), some.shape[0], longest, some.shape[2])
        keys, values = some.new_zeros(shape), some.new_zeros(shape)
        for at, row in enumerate(rows):
            if row.length:
                keys[at, :, longest - row.length :], values[at, :, longest - row.length :] = (
                    row.layers[layer]
                )
        cache.update(keys, values, layer)
    return cache


def unbatch_keys(cache: Any, spans: Sequence[Sequence[tuple[int, int]]]) -> list[KeptKeys]:  # noqa: ANN401
    """Return each row's keys: the positions in its `spans`, in order; views where one is enough."""
    return [
        KeptKeys(
            tuple(
                (
                    _join([layer.keys[row, :, start:end] for start, end in parts if start < end]),
                    _join([layer.values[row, :, start:end] for start, end in parts if start < end]),
                )
                for layer in cache.layers
            )
        )
        for row, parts in enumerate(spans)
    ]


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def group_by_length(lengths: Sequence[int], *, overhead: int) -> list[list[int]]:
    """Return indices in groups of similar length, so that padding and calls together cost least.

    Args:
        overhead: What a call costs by itself, in positions.
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    # best[n]: least cost of the n shortest, and where their last group begins.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        best.append(
            min(
                (best[start][0] + overhead + (end - start) * longest, start) for start in range(end)
            )
        )
    groups: list[list[int]] = []
    end = len(order)
    while end:
        start = best[end][1]
        groups.append(order[start:end])
        end = start
    return groups
