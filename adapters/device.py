"""Where to compute."""

import sys

from core.errors import DeviceMissing


def resolve_device(name: str) -> str:
    """Return torch's name of a device, after a look whether it is there.

    Args:
        name: "cpu", "mps", "cuda", "cuda:N", or "auto": the first GPU if there is one, else the
            CPU. "auto:N" deals GPUs out: the N-th from zero, and from the first again after the
            last. Apple's GPU ("mps") is never chosen unasked: no number here was measured on it.

    Raises:
        DeviceMissing: There is no such device, or torch was installed without support for it.
    """
    kind, _, number = name.partition(":")
    if kind == "cpu":
        return name
    import torch  # noqa: PLC0415 - seconds, and only a process that loads weights needs it

    num_gpus = torch.cuda.device_count()
    if kind == "auto":
        return f"cuda:{int(number or 0) % num_gpus}" if num_gpus else "cpu"
    is_there = torch.backends.mps.is_available() if kind == "mps" else int(number or 0) < num_gpus
    if not is_there:
        raise DeviceMissing(
            f"There is no device {name!r}: torch {torch.__version__} sees {num_gpus} CUDA GPUs."
        )
    return name


def check_device(name: str) -> None:
    """Look whether a device is there, without importing torch for those that always are.

    Raises:
        DeviceMissing: As from `resolve_device`.
    """
    if name != "cpu" and not name.startswith("auto"):
        resolve_device(name)


def is_lost(name: str) -> bool:
    """Whether a device can compute nothing any more.

    An error inside a kernel (an index out of range, memory that fails, a driver that restarted)
    leaves a process's context on a GPU unusable: every operation fails from then on, whatever it
    works on, until a new process begins.
    """
    torch = sys.modules.get("torch")
    if torch is None or (device := resolve_device(name)) == "cpu":
        return False
    try:
        torch.zeros(1, device=device).add_(1).item()
    except torch.OutOfMemoryError:
        return False
    except RuntimeError:
        return True
    return False
