"""Settles `language=auto` for a whole job from a few of its windows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from adapters.base import Adapter, Window
from workers.batching import split_evenly
from workers.recognise import run_parts
from workers.room import Room

NUM_VOTERS = 5
"""Windows that vote, spread over the job: an opening jingle or one quoted sentence decides nothing.
They are a function of the job alone, so the answer does not depend on what else is running. Long
media has excerpts that vote instead: see `core.audio.excerpts`."""


def elect_language(
    adapter: Adapter, voters: Mapping[str, Sequence[Window]], *, batch_windows: int
) -> dict[str, str | None]:
    """Return the language of each job, by the mean of its windows' probabilities.

    Longer windows weigh more. Every second window is heard first, and the others only where they
    could change the outcome: whoever waits for the first words waits for three passes of the
    encoder instead of five. A window on which detection fails has no vote; a job without votes gets
    None, and each of its windows is left to itself.

    Args:
        voters: For each job (any name) its windows.
    """
    if len(adapter.languages) == 1:
        return dict.fromkeys(voters, next(iter(adapter.languages)))
    totals: dict[str, dict[str, float]] = {job: {} for job in voters}
    ahead = {job: list(windows[1::2]) for job, windows in voters.items()}
    first = {job: windows[::2] for job, windows in voters.items()}
    _hear(adapter, first, totals, batch_windows)
    open_ = {job: windows for job, windows in ahead.items() if not _is_over(totals[job], windows)}
    _hear(adapter, open_, totals, batch_windows)
    return {job: _winner(votes) for job, votes in totals.items()}


def _hear(
    adapter: Adapter,
    voters: Mapping[str, Sequence[Window]],
    totals: dict[str, dict[str, float]],
    batch_windows: int,
) -> None:
    """Add the votes of these windows to `totals`."""
    flat = [
        (job, replace(window, language=None))
        for job, windows in voters.items()
        for window in windows
    ]
    room = Room()
    for part in split_evenly(flat, batch_windows):
        answers = run_parts([window for _, window in part], adapter.detect_language, room=room)
        for (job, window), answer in zip(part, answers, strict=True):
            if isinstance(answer, Exception):
                continue
            for language, probability in answer.items():
                weight = probability * len(window.samples)
                totals[job][language] = totals[job].get(language, 0.0) + weight


def _is_over(votes: Mapping[str, float], ahead: Sequence[Window]) -> bool:
    """Whether the leader stays ahead even if all other windows vote for the next."""
    leader, second = sorted([*votes.values(), 0.0, 0.0], reverse=True)[:2]
    return leader - second > sum(len(window.samples) for window in ahead)


def _winner(votes: Mapping[str, float]) -> str | None:
    return max(sorted(votes), key=lambda code: votes[code]) if votes else None
