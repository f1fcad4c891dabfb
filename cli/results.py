"""What a run tells: a line for each failure, JSON lines if asked, and a summary."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cli.progress import Tally, format_audio, format_clock
from cli.steps import FileResult


class Results:
    """Collects results in the order they come.

    Attributes:
        say: Prints a line on stderr; the progress bar sets its own.
        tally: The run's numbers, once it began.
        interrupted: Whether a signal ended the run early.
    """

    def __init__(self, *, as_jsonl: bool, num_others: int = 0) -> None:
        self._as_jsonl = as_jsonl
        self._num_others = num_others
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self.say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)
        self.tally: Tally | None = None
        self.interrupted = False

    @property
    def num_failed(self) -> int:
        """How many recordings have no transcript and need attention."""
        return self._counts["failed"]

    def add(self, result: FileResult) -> None:
        """Take one result and tell of it at once."""
        self._counts[result.status] += 1
        if result.status == "failed":
            self._reasons[result.error_code or ""] += 1
            self.say(f"failed: {show(result.path)}: {result.error_message} ({result.error_code})")
        if self._as_jsonl:
            print(to_json(result), flush=True)

    def summarise(self) -> None:
        """Print the summary: on stdout, or on stderr where stdout is for JSON."""
        out = sys.stderr if self._as_jsonl else sys.stdout
        counts = self._counts
        parts = [f"{counts[name]} {name}" for name in ("completed", "skipped", "failed")]
        line = ", ".join(parts)
        if self.tally is not None:
            unfinished = self.tally.num_files - self.tally.num_completed - self.tally.num_failed
            line += f", {unfinished} unfinished" if unfinished else ""
            elapsed_s = time.monotonic() - self.tally.started_s
            line += (
                f"; {format_audio(self.tally.done_s)} of audio in {format_clock(elapsed_s)}"
                f" ({self.tally.done_s / elapsed_s if elapsed_s else 0:.1f}x)"
            )
        print(line, file=out)
        for reason, number in self._reasons.most_common():
            print(f"  failed, {reason}: {number}", file=out)
        if self._num_others:
            print(f"  left alone, no recordings: {self._num_others}", file=out)
        if self.interrupted:
            print("Interrupted. The same command goes on where this stopped.", file=out)
        out.flush()


def to_json(result: FileResult) -> str:
    """Return one result as a line of JSON."""
    error = (
        {"code": result.error_code, "message": result.error_message}
        if result.status == "failed"
        else None
    )
    data = {
        "path": show(result.path),
        "status": result.status,
        "job_id": result.job_id,
        "outputs": [show(path) for path in result.outputs],
        "duration_s": result.duration_s,
        "language": result.language,
        "text": result.text,
        "error": error,
    }
    return json.dumps(data, ensure_ascii=False)


def show(path: Path) -> str:
    """Return a path as text, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "replace")
