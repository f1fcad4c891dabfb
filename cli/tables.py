"""Plain tables on stdout: aligned for people, one row a line for `grep` and `awk`."""

from collections.abc import Sequence
from datetime import datetime

Cell = str | int | datetime | None


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print `rows` under `header` with two spaces between columns."""
    texts = [[*map(_text, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    for line in (header, *texts):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, datetime):
        return cell.strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(cell)
