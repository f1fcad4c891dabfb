"""Whose windows come next. Pure, apart from the memory of whose turn it was."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

Item = TypeVar("Item")

MAX_REMEMBERED_KEYS = 1000


@dataclass
class Rotation:
    """Whose turn it was last; an engine keeps it between its claims.

    Forgetting it (a restart, another engine) costs a little fairness, never work.
    """

    last_key: UUID | None = None
    last_job: dict[UUID, UUID] = field(default_factory=dict)

    def advance(self, served: Sequence[tuple[UUID, UUID]]) -> None:
        """Remember (key, job) pairs in the order in which they were served."""
        if len(self.last_job) > MAX_REMEMBERED_KEYS:
            self.last_job.clear()
        for key_id, job_id in served:
            self.last_key = key_id
            self.last_job[key_id] = job_id


def rotate(items: Sequence[UUID], last: UUID | None) -> list[UUID]:
    """Return sorted `items` so that the one after `last` comes first.

    >>> rotate([1, 2, 3], 2)
    [3, 1, 2]
    """
    if last is None:
        return list(items)
    return [i for i in items if i > last] + [i for i in items if i <= last]


def interleave(by_key: Mapping[UUID, Sequence[Sequence[Item]]]) -> Iterator[Item]:
    """Yield one item a key in turn; within a key, one a job in turn; within a job, in order.

    Args:
        by_key: For each key, in order, the items of each of its jobs, in order.
    """
    keys = deque(deque(deque(items) for items in jobs if items) for jobs in by_key.values())
    while keys:
        jobs = keys.popleft()
        if not jobs:
            continue
        items = jobs.popleft()
        yield items.popleft()
        if items:
            jobs.append(items)
        keys.append(jobs)
