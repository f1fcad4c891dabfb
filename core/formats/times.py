"""Times as subtitle formats write them."""


def format_clock(time_ms: int, *, decimal_mark: str) -> str:
    """Return `HH:MM:SS.mmm`; hours have at least two digits and no upper bound.

    Args:
        decimal_mark: "," for SRT, "." for WebVTT.
    """
    seconds, millis = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{decimal_mark}{millis:03d}"


def to_seconds(time_ms: int) -> float:
    """Return the wire's float seconds."""
    return time_ms / 1000
