"""Prints the table of settings for docs/operating.md, where a test compares it."""

import sys
from pathlib import Path

from core.settings import Settings

BEGIN, END = "<!-- settings: scripts/settings_table.py --write -->\n", "<!-- /settings -->\n"
PAGE = Path(__file__).parent.parent / "docs" / "operating.md"


def render() -> str:
    """Return the table, a row a field, in Markdown."""
    rows = ["| variable | default | what it does |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.get_default()}`"
        if field.default_factory is not None:
            default = "`~/.local/share/scriptorium`"
        rows.append(f"| `SCRIPTORIUM_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def splice(page: str) -> str:
    """Return the page with a fresh table between the two marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{render()}{END}{tail}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(splice(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(render(), end="")
