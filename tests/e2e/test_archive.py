"""A manifest with bad lines through every real process but the model, to its end and retried."""

from pathlib import Path

from benchmarks.archive import measure, service

NUM_LINES = 96
NUM_BAD = 16
"""Two of every kind of bad line. `python -m benchmarks.archive` does the same with 10,000."""

WORKER_BYTES = 900 << 20
"""What worker, nursery and decoding children had at most together, with 400 and with 10,000 lines
alike: 0.5 GB. Shared pages count once for each."""


def test_every_line_is_accounted_for_and_retry_touches_only_what_failed(tmp_path: Path) -> None:
    with service(tmp_path) as run:
        measure(run, NUM_LINES, NUM_BAD, timeout_s=600)
        assert run.peak_bytes["worker 0"] < WORKER_BYTES
