"""Attention over rows of different length without padding one to another.

The text model computes everything but attention position by position. So prompts are laid end to
end for it, and only here is each row looked at by itself. transformers hands whatever is given as
mask to the attention function unseen: here it is a plan that knows the rows and their keys.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from adapters.qwen3_asr.keys import RowKeys
from core import errors

_NAME = "scriptorium_rows"


class Plan(Protocol):
    """How the queries of a forward pass attend."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Keep `key` and `value` and return what the queries see.

        Args:
            query: Shape (rows, heads, positions, head_dim); the others have their own heads.

        Returns:
            Shape (rows, positions, heads, head_dim).
        """
        ...


class ReadPlan:
    """Prompts end to end in one row of the model; each goes on from the keys it has.

    Attributes:
        positions: Of each embedding in its own row, shape (1, total).
        spans: Where in the pack each row begins and ends.
    """

    def __init__(self, keys: RowKeys, num_new: Sequence[int], device: torch.device) -> None:
        self._keys = keys
        self.spans = list(pairwise([0, *accumulate(num_new)]))
        old = [length - new for length, new in zip(keys.lengths, num_new, strict=True)]
        self._masks = [
            _causal_mask(*pair, device) if pair[0] else None
            for pair in zip(old, num_new, strict=True)
        ]
        self._old = old
        self.positions = torch.cat(
            [
                torch.arange(start, length, device=device)
                for start, length in zip(old, keys.lengths, strict=True)
            ]
        )[None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Plan`."""
        self.keep(layer, key, value)
        keys, values = self._keys.layers[layer]
        seen = []
        for row, (start, end) in enumerate(self.spans):
            length, mask = self._keys.lengths[row], self._masks[row]
            seen.append(
                scaled_dot_product_attention(
                    query[:, :, start:end],
                    keys[row : row + 1, :, :length],
                    values[row : row + 1, :, :length],
                    attn_mask=mask,
                    is_causal=mask is None,
                    enable_gqa=True,
                )
            )
        return torch.cat(seen, dim=2).transpose(1, 2)

    def keep(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Keep what the new positions give."""
        keys, values = self._keys.layers[layer]
        for row, (start, end) in enumerate(self.spans):
            new = slice(self._old[row], self._keys.lengths[row])
            keys[row, :, new] = key[0, :, start:end]
            values[row, :, new] = value[0, :, start:end]


class WritePlan:
    """One position a row."""

    def __init__(self, keys: RowKeys, device: torch.device, *, lengths: Sequence[int] = ()) -> None:
        """Look at each row's last position, or at the last of its first `lengths`."""
        lengths = lengths or keys.lengths
        self._keys = keys
        self._rows = torch.arange(len(lengths), device=device)
        last = torch.tensor(lengths, device=device) - 1
        self._longest = max(lengths)
        beyond = torch.arange(self._longest, device=device) > last[:, None]
        like = keys.layers[0][0]
        mask = torch.zeros(beyond.shape, dtype=like.dtype, device=device)
        self._mask = mask.masked_fill_(beyond, float("-inf"))[:, None, None]
        self.positions = last[:, None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Plan`."""
        keys, values = self._keys.layers[layer]
        at = self.positions[:, 0]
        keys[self._rows, :, at] = key[:, :, 0]
        values[self._rows, :, at] = value[:, :, 0]
        num_rows, num_heads, _, size = query.shape
        # The heads that share keys, as positions: their keys are not copied.
        seen = scaled_dot_product_attention(
            query.reshape(num_rows, keys.shape[1], -1, size),
            keys[:, :, : self._longest],
            values[:, :, : self._longest],
            attn_mask=self._mask,
        )
        return seen.reshape(num_rows, 1, num_heads, size)


def install(text_model: Any) -> None:  # noqa: ANN401
    """Let a Qwen3 text model attend by plans.

    Raises:
        CheckpointInvalid: It has layers that see a sliding window only.
    """
    if set(text_model.config.layer_types) != {"full_attention"}:
        raise errors.CheckpointInvalid(f"attention of the kinds {text_model.config.layer_types}")
    AttentionInterface.register(_NAME, _attend)
    text_model.set_attn_implementation(_NAME)


def as_mask(plan: Plan) -> dict[str, Plan]:
    """Return `plan` as what the text model takes as masks that are ready."""
    return {"full_attention": plan}


def _attend(
    module: Any,  # noqa: ANN401
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Plan,
    **_options: object,
) -> tuple[Tensor, None]:
    """Be transformers' attention function; the scale is the usual 1/sqrt(head_dim)."""
    return attention_mask.attend(module.layer_idx, query, key, value), None


def _causal_mask(old: int, new: int, device: torch.device) -> Tensor:
    """Return what new positions add to their scores, shape (new, old + new)."""
    mask = torch.full((new, old + new), float("-inf"), device=device)
    return mask.triu_(old + 1)
