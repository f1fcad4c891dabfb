"""Code blocks of the documentation.

The words after a fence's language say what tests do with a block: `run` runs it against a real
server (tests/e2e/test_docs.py), other words name a block for a test of its own. A comment
`<!-- prints: TEXT -->` below a block says what its output must contain.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$(?:\n<!-- prints: (?P<prints>.+?) -->)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        info: What stands after the fence: a language, and perhaps more.
        prints: What it prints when it is run, among other things.
    """

    info: str
    code: str
    prints: str | None

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]


def find_blocks(page: Path) -> list[Block]:
    """Return all blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(**match.groupdict()) for match in _BLOCK.finditer(text)]


def find_block(page: Path, info: str) -> str:
    """Return the code of the only block with this `info`."""
    [code] = [block.code for block in find_blocks(page) if block.info == info]
    return code
