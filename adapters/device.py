"""Where to compute when nobody said so."""


def resolve_device(name: str) -> str:
    """Return torch's name of the device: "auto" is the first GPU if there is one, else the CPU.

    Apple's GPU ("mps") is never chosen unasked: no number here was measured on it.
    """
    if name != "auto":
        return name
    import torch  # noqa: PLC0415 - seconds, and only a process that loads weights needs it

    return "cuda" if torch.cuda.is_available() else "cpu"
