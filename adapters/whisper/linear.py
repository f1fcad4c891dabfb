"""Matrix products: plain, or with 8-bit weights where a row's neighbours cannot touch its answer.

Integer products need one scale for the activations. torch's dynamic quantisation takes it from the
whole batch, so that a loud row changes the others. Here every row is divided by its own largest
value first: the scale is then the same for all, and each row's answer is its own. Weights have one
scale an output channel.
"""

from collections.abc import Sequence
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


def make_linear(parts: Sequence[torch.nn.Linear], *, int8: bool) -> "PlainLinear | Int8Linear":
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
    return Int8Linear(weight, bias) if int8 else PlainLinear(weight, bias)


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

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / _STEPS
        zeros = torch.zeros(len(weight), dtype=torch.long)
        packed = torch.quantize_per_channel(
            weight, scales.double(), zeros, axis=0, dtype=torch.qint8
        )
        self._packed = torch.ops.quantized.linear_prepack(packed, None)
        self._bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().float()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        peaks = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        product: torch.Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows / peaks, 1 / _STEPS, _ZERO_POINT, self._packed
        )
        return torch.addcmul(self._bias, product, peaks)
