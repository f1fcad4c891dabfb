"""What the documentation says about names in the code is true."""

import importlib.util
import re
from pathlib import Path

import pytest
from typer.main import get_command

from cli.main import app
from core.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "samples" / "README.md"])
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
_COMMAND = re.compile(r"^(?:\.venv/bin/)?scriptorium (?P<words>.+)$", re.MULTILINE)


def _script():
    spec = importlib.util.spec_from_file_location(
        "settings_table", ROOT / "scripts" / "settings_table.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_settings_is_that_of_the_settings():
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert page == _script().splice(page), "run: python scripts/settings_table.py --write"


def test_every_setting_is_described():
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_each_invariant_names_tests_that_exist():
    named = re.findall(r"`(test_\w+)`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    assert len(named) > 15
    assert [name for name in named if f"def {name}(" not in code] == []


def test_decisions_say_which_code_they_govern_and_it_exists():
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [page.name[:4] for page in decisions] == [
        f"{number:04}" for number in range(1, len(decisions) + 1)
    ]
    for page in decisions:
        governs = page.read_text(encoding="utf-8").partition("\nGoverns:")[2]
        paths = [path for path in re.findall(r"`([\w/.]+)`", governs) if "/" in path]
        assert paths, page.name
        assert [path for path in paths if not (ROOT / path).exists()] == [], page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page):
    for match in _COMMAND.finditer(page.read_text(encoding="utf-8")):
        command = get_command(app)
        words = match["words"].partition("#")[0].split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not hasattr(command, "commands"), match[0]
        known = {option for parameter in command.params for option in parameter.opts}
        options = {word for word in words if word.startswith("--")}
        assert options <= known, match[0]
