"""From the aligner's raw time classes to word intervals that make sense. No torch."""

from bisect import bisect_right
from collections.abc import Sequence

SHORTEST_WORD_MS = 40
"""Words the aligner gives no length get this much, half a time class, where there is room."""


def repair_times(times: Sequence[int]) -> list[int]:
    """Return `times` made non-decreasing by replacing as few as possible.

    What lies outside the longest non-decreasing subsequence is an outlier; a run of them is spread
    evenly between its good neighbours. (The official repair snaps runs of one or two to a
    neighbour, which makes words of no length.)
    """
    good = _longest_non_decreasing(times)
    if not good:
        return []
    repaired = list(times)
    for left, right in zip([-1, *good], [*good, len(times)], strict=True):
        low = times[left] if left >= 0 else times[right]
        high = times[right] if right < len(times) else times[left]
        for at in range(left + 1, right):
            repaired[at] = low + (high - low) * (at - left) // (right - left)
    return repaired


def _longest_non_decreasing(values: Sequence[int]) -> list[int]:
    """Return the indices of a longest non-decreasing subsequence. O(n log n)."""
    tails: list[int] = []
    tail_at: list[int] = []
    before: list[int] = []
    for at, value in enumerate(values):
        length = bisect_right(tails, value)
        before.append(tail_at[length - 1] if length else -1)
        if length == len(tails):
            tails.append(value)
            tail_at.append(at)
        else:
            tails[length] = value
            tail_at[length] = at
    chain: list[int] = []
    at = tail_at[-1] if tail_at else -1
    while at >= 0:
        chain.append(at)
        at = before[at]
    return chain[::-1]


def spread_words(times: Sequence[int], *, duration_ms: int) -> list[tuple[int, int]]:
    """Return (start, end) of each word in milliseconds.

    Args:
        times: Non-decreasing: start and end of the first word, of the second, and so on.
        duration_ms: Of the audio; at least one a word.

    Returns:
        Intervals in order that do not overlap, none empty, all inside the audio.
    """
    count = len(times) // 2
    if not count:
        return []
    shortest = max(1, min(SHORTEST_WORD_MS, duration_ms // count))
    starts, ends = list(times[0::2]), list(times[1::2])
    free = 0
    for word in range(count):
        starts[word] = max(starts[word], free)
        ends[word] = max(ends[word], starts[word] + shortest)
        free = ends[word]
    limit = duration_ms
    for word in reversed(range(count)):
        ends[word] = min(ends[word], limit)
        starts[word] = min(starts[word], ends[word] - shortest)
        limit = starts[word]
    return list(zip(starts, ends, strict=True))
