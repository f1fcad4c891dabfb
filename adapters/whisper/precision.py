"""How numbers are stored, by what the options say."""

import torch

from adapters.whisper.linear import is_int8_exact
from adapters.whisper.network import Precision
from core import errors

_FORMATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def choose_precision(dtype: str, device: torch.device) -> Precision:
    """Return what `LoadOptions.dtype` means on `device`.

    "auto" is what benchmarks/README.md measures as the best for the device.

    Raises:
        CheckpointInvalid: The number format does not fit the device, or is none.
    """
    on_cpu = device.type == "cpu"
    if dtype == "auto":
        best_on_cpu = "int8" if is_int8_exact() else "float32"
        dtype = best_on_cpu if on_cpu else "float16"
    if dtype == "int8":
        if not on_cpu:
            raise errors.CheckpointInvalid("int8 is for the CPU; use float16 or bfloat16 here.")
        return Precision(compute=torch.float32, cross=torch.bfloat16, int8=True)
    number = _FORMATS.get(dtype)
    if number is None:
        raise errors.CheckpointInvalid(f"{dtype!r} is no number format for Whisper.")
    return Precision(compute=number, cross=number)
