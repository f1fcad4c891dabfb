"""How many windows the device has memory for."""

_GROW_AFTER = 50
"""Parts of the largest size that fit, before a larger one is tried again: whoever took the memory
may have given it back."""


class Room:
    """Learns from batches that did not fit.

    Each of those costs a forward pass for nothing, and the next batch is as large as the last.
    """

    def __init__(self) -> None:
        self._most: int | None = None
        self._num_fitted = 0

    def limit(self, num_windows: int) -> int:
        """Return how many of `num_windows` to try at once."""
        return num_windows if self._most is None else min(num_windows, self._most)

    def shrink(self, num_windows: int) -> None:
        """Take note that more than `num_windows` did not fit."""
        self._most = num_windows
        self._num_fitted = 0

    def fit(self, num_windows: int) -> None:
        """Take note that so many were run at once."""
        if num_windows == self._most:
            self._num_fitted += 1
            if self._num_fitted == _GROW_AFTER:
                self.shrink(2 * num_windows)
