"""Matrix products: plain, or with 8-bit weights where a row's neighbours cannot touch its answer.

Integer products need one scale for the activations. torch's dynamic quantisation takes it from the
whole batch, so that a loud row changes the others. Here every row is divided by its own largest
value first: the scale is then the same for all, and each row's answer is its own. Weights have one
scale an output channel.
"""

import warnings
from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

_STEPS = 127
_ZERO_POINT = 128  # torch's CPU kernels take unsigned activations


class Linear(Protocol):
    """A matrix product with bias over the last dimension."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for rows of shape (…, num_inputs)."""
        ...


class Storage(Enum):
    """How a matrix is kept."""

    PLAIN = auto()
    """As the checkpoint's floating-point numbers."""
    INT8 = auto()
    """8-bit weights, 8-bit activations."""
    INT8_FINE = auto()
    """8-bit weights, activations in two 8-bit parts: twice the work, a quarter of the error."""


def make_linear(parts: Sequence[torch.nn.Linear], storage: Storage) -> "PlainLinear | Int8Linear":
    """Join linear layers with the same input into one, outputs side by side."""
    with torch.no_grad():
        weight = torch.cat([part.weight for part in parts]) if len(parts) > 1 else parts[0].weight
        # torch types the bias as always there; layers made with bias=False have None.
        biases: list[torch.Tensor | None] = [part.bias for part in parts]
        bias = None
        if any(part is not None for part in biases):
            sizes = [len(part.weight) for part in parts]
            filled = [
                weight.new_zeros(size) if part is None else part
                for part, size in zip(biases, sizes, strict=True)
            ]
            bias = torch.cat(filled)
    if storage is Storage.PLAIN:
        return PlainLinear(weight, bias)
    return Int8Linear(weight, bias, is_fine=storage is Storage.INT8_FINE)


def is_int8_exact() -> bool:
    """Whether this CPU multiplies 8-bit integers without overflow.

    Kernels for x86 without VNNI add pairs of products in 16 bits and saturate; kernels for other
    processors lack the operation used here.
    """
    return bool(torch.cpu._is_vnni_supported())  # noqa: SLF001 - there is no public way to ask


class PlainLinear(torch.nn.Module):
    """In the checkpoint's floating-point format."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach(), requires_grad=False)
        self.bias = bias
        if bias is not None:
            self.bias = torch.nn.Parameter(bias.detach(), requires_grad=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        return F.linear(rows, self.weight, self.bias)


class Int8Linear(torch.nn.Module):
    """Weights in 8 bits with a scale a channel, activations with a scale a row. CPU only."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, *, is_fine: bool = False
    ) -> None:
        super().__init__()
        self._is_fine = is_fine
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / _STEPS
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():
            # Deprecated without a date; torch is pinned, and float32 is the way out.
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
            packed = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(packed, None)
        self._bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().float()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        peaks = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        scaled = rows / peaks
        if self._is_fine:
            # What rounding took away, in steps: within half a step, so twice that fills the range.
            steps = scaled * _STEPS
            lost = (steps - steps.round()).mul_(2)
            # In one product, since few rows wait for the weights: 1.8 times as fast for one row,
            # 1.1 times for 16.
            coarse, rest = self._multiply(torch.cat((scaled, lost))).chunk(2)
            product = coarse.add_(rest, alpha=1 / (2 * _STEPS))
        else:
            product = self._multiply(scaled)
        return product.mul_(peaks).add_(self._bias)  # in place: fresh memory costs more than sums

    def _multiply(self, scaled: torch.Tensor) -> torch.Tensor:
        """Return the product for rows within [-1, 1]."""
        product: torch.Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            scaled, 1 / _STEPS, _ZERO_POINT, self._packed
        )
        return product
