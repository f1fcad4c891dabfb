"""Which windows go into one forward pass, and which checkpoint runs next. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from core.transcript import SAMPLE_RATE_HZ

MODEL_TURN_S = 20.0
"""How long a loaded checkpoint may go on while windows of another one, as urgent, wait."""

MAX_PADDING = 0.25
"""Most of a batch that may be padding: beyond that a batch of its own costs less."""


class Candidate(Protocol):
    """What `models.Window` has."""

    @property
    def num_samples(self) -> int: ...  # noqa: D102

    @property
    def failures(self) -> int: ...  # noqa: D102


Item = TypeVar("Item", bound=Candidate)
Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How large a window batch may be.

    Attributes:
        max_audio_ms: Most padded audio: the longest window's cost times their number.
        padded_ms: What every window costs at least; see `AdapterSpec`.
    """

    max_windows: int
    max_audio_ms: int
    padded_ms: int = 0

    def cost_ms(self, window: Candidate) -> int:
        """Return what a window costs when it stands alone."""
        return max(self.padded_ms, window.num_samples * 1000 // SAMPLE_RATE_HZ)


def plan_batch(candidates: Sequence[Item], limits: BatchLimits) -> list[Item]:
    """Choose the next batch.

    The first candidate is always in it, so nothing starves. It is joined by those that cost about
    as much, in the order of candidates among equals, as long as the padded cost stays within the
    budget and little of it is padding. A window that has failed before stays alone: if it
    takes the process down, it must not count against neighbours.

    Args:
        candidates: Most deserving first.
    """
    first, others = candidates[0], candidates[1:]
    if first.failures:
        return [first]
    batch, costs = [first], [limits.cost_ms(first)]
    healthy = [window for window in others if not window.failures]
    for window in sorted(healthy, key=lambda w: abs(limits.cost_ms(w) - costs[0])):
        if len(batch) >= limits.max_windows:
            break
        extended = [*costs, limits.cost_ms(window)]
        padded = max(extended) * len(extended)
        if padded > limits.max_audio_ms or padded - sum(extended) > MAX_PADDING * padded:
            break
        batch.append(window)
        costs = extended
    return batch


def choose_model(waiting: Mapping[str, int], loaded: str | None, *, served_s: float) -> str:
    """Return the checkpoint to run next.

    The most urgent priority wins; among equals the loaded one goes on for its turn, then the next
    by name.

    Args:
        waiting: At least one: name and priority of the most urgent window.
        served_s: For how long the loaded one has been running.
    """
    most_urgent = min(waiting.values())
    names = sorted(name for name, priority in waiting.items() if priority == most_urgent)
    if loaded is None:
        return names[0]
    others = [name for name in names if name != loaded]
    if loaded in names and (not others or served_s < MODEL_TURN_S):
        return loaded
    return next((name for name in others if name > loaded), others[0])


def spread(num_items: int, num_wanted: int) -> list[int]:
    """Return up to `num_wanted` positions, evenly over `num_items`, ends avoided.

    >>> spread(10, 5)
    [1, 3, 5, 7, 9]
    """
    num_wanted = min(num_items, num_wanted)
    return [(2 * i + 1) * num_items // (2 * num_wanted) for i in range(num_wanted)]


def split_evenly(items: Sequence[Thing], size: int) -> list[Sequence[Thing]]:
    """Return `items` in runs of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
