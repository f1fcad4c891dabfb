"""How far a run is, in numbers and on the screen."""

import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_PLAIN_S = 30.0
"""Without a terminal, a line of progress that often."""


@dataclass
class Tally:
    """Counts of files and of audio; plain arithmetic, told the time by the caller.

    Attributes:
        num_files: Files to transcribe in this run (skipped ones are not among them).
        started_s: Monotonic time at which work began.
    """

    num_files: int
    started_s: float
    num_completed: int = 0
    num_failed: int = 0
    done_s: float = 0.0
    """Seconds of audio of completed files."""
    _running_s: dict[object, float] = field(default_factory=dict)
    _sizes: dict[object, int] = field(default_factory=dict)
    _durations_s: dict[object, float] = field(default_factory=dict)

    def expect(self, key: object, size_bytes: int) -> None:
        """Add a file of which only the size is known yet."""
        self._sizes[key] = size_bytes

    def learn(self, key: object, duration_s: float) -> None:
        """Note the duration of an expected file, once it is known."""
        self._durations_s[key] = duration_s

    def advance(self, key: object, audio_s: float) -> None:
        """Note how much of a running file is recognised."""
        self._running_s[key] = audio_s

    def complete(self, key: object, duration_s: float) -> None:
        """Count a file as completed."""
        self.learn(key, duration_s)
        self._running_s.pop(key, None)
        self.num_completed += 1
        self.done_s += duration_s

    def fail(self, key: object) -> None:
        """Count a file as failed; its audio is no longer expected."""
        self.num_failed += 1
        for noted in (self._running_s, self._sizes, self._durations_s):
            noted.pop(key, None)

    @property
    def heard_s(self) -> float:
        """Seconds of audio recognised so far, in completed and running files."""
        return self.done_s + sum(self._running_s.values())

    def expected_s(self) -> float | None:
        """Return the seconds of audio of all files: known durations, the rest by its bytes."""
        known_s = sum(self._durations_s.values())
        known_bytes = sum(self._sizes.get(key, 0) for key in self._durations_s)
        unknown_bytes = sum(self._sizes.values()) - known_bytes
        if unknown_bytes == 0:
            return known_s
        return known_s + unknown_bytes * known_s / known_bytes if known_bytes else None

    def speed(self, now_s: float) -> float:
        """Return seconds of audio per second."""
        elapsed_s = now_s - self.started_s
        return self.heard_s / elapsed_s if elapsed_s > 0 else 0.0

    def eta_s(self, now_s: float) -> float | None:
        """Return how long the rest will take, or None while nobody can tell."""
        expected_s, speed = self.expected_s(), self.speed(now_s)
        if expected_s is None or speed <= 0:
            return None
        return max(0.0, expected_s - self.heard_s) / speed

    def line(self, now_s: float) -> str:
        """Return files, audio, speed and ETA in one line."""
        expected_s, eta_s = self.expected_s(), self.eta_s(now_s)
        of_all = "" if expected_s is None else f" of {format_audio(expected_s)}"
        return (
            f"{self.num_completed + self.num_failed}/{self.num_files} files"
            f"  {format_audio(self.heard_s)}{of_all} audio"
            f"  {self.speed(now_s):.1f}x"
            f"  ETA {'-' if eta_s is None else format_clock(eta_s)}"
        )


def format_audio(seconds: float) -> str:
    """Return 5025 s as "1.40 h"; less than an hour as "41.9 min", less than a minute as "7.1 s"."""
    if seconds >= 3600:
        return f"{seconds / 3600:.2f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def format_clock(seconds: float) -> str:
    """Return 5025.3 s as "1:23:45"."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class ProgressView:
    """A bar on a terminal, now and then a line elsewhere; always on stderr."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._console = Console(file=sys.stderr, highlight=False)
        self._is_terminal = self._console.is_terminal
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            console=self._console,
            transient=True,
            disable=not self._is_terminal,
        )
        self._task = self._bar.add_task("", total=max(1, tally.num_files))
        self._said_s = tally.started_s

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def refresh(self) -> None:
        """Show the present state."""
        now_s = time.monotonic()
        line = self._tally.line(now_s)
        expected_s = self._tally.expected_s()
        if expected_s:
            done, total = self._tally.heard_s, expected_s
        else:
            done = self._tally.num_completed + self._tally.num_failed
            total = max(1, self._tally.num_files)
        self._bar.update(self._task, completed=done, total=total, description=line)
        if not self._is_terminal and now_s - self._said_s >= _PLAIN_S:
            self._said_s = now_s
            self.say(line)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line, markup=False, soft_wrap=True)
