"""What the documentation says about names in the code is true."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from api.app import create_app
from api.main import make_context
from cli.main import app
from core.settings import Settings
from tests.support.pages import find_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "samples" / "README.md"])
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
_COMMAND = re.compile(
    r"(?:^|[/=\s])(?:scriptorium|docker compose run --rm api) (?P<words>[a-z-].*)$", re.MULTILINE
)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SETTING = re.compile(r"\bSCRIPTORIUM_[A-Z0-9_]+")
_ROUTE = re.compile(
    r"(?:\b(?P<method>GET|POST|PUT|PATCH|DELETE) |http://127\.0\.0\.1:8000)"
    r"(?P<path>/(?:v1|health|metrics)[^\s\"'`)]*)"
)
OTHER_VARIABLES = {
    "SCRIPTORIUM_API_KEY",  # of the command line
    "SCRIPTORIUM_PUBLISH",  # of docker-compose.yml
}


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


def pages(function):
    ids = [str(page.relative_to(ROOT)) for page in PAGES]
    return pytest.mark.parametrize("page", PAGES, ids=ids)(function)


def code_of(page: Path) -> str:
    """Return what stands in blocks and in backticks, continued lines joined."""
    text = page.read_text(encoding="utf-8")
    spans = _SPAN.findall(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    blocks = [block.code for block in find_blocks(page)]
    return "\n".join([*blocks, *spans]).replace("\\\n", " ")


@pages
def test_commands_and_options_exist(page):
    for match in _COMMAND.finditer(code_of(page)):
        command = get_command(app)
        words = match["words"].partition("#")[0].split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        is_about_all = not words or words[0] in {"--help", "…"} or "`" in words[0]
        assert is_about_all or not hasattr(command, "commands"), match[0]
        known = {option for parameter in command.params for option in parameter.opts}
        options = {word.partition("=")[0].strip("[]") for word in words if "--" in word[:3]}
        assert options <= known | {"--help"}, match[0]


@pages
def test_settings_exist(page):
    named = set(_SETTING.findall(page.read_text(encoding="utf-8")))
    known = {f"SCRIPTORIUM_{name.upper()}" for name in Settings.model_fields}
    families = {name for name in named if name.endswith("_")}  # `SCRIPTORIUM_LIMIT_…`
    assert named - families <= known | OTHER_VARIABLES
    assert [f for f in families if not any(name.startswith(f) for name in known)] == []


@pages
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in re.findall(r"^make (.+)$", code_of(page), re.MULTILINE):
        words = line.partition("#")[0].split()
        named = {word for word in words if "=" not in word and not word.startswith("-")}
        assert named <= targets, line


@pages
def test_compose_services_and_profiles_exist(page):
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    profiles = {profile for each in services.values() for profile in each.get("profiles", [])}
    code = code_of(page)
    assert set(re.findall(r"--profile (\w+)", code)) <= profiles
    assert set(re.findall(r"--scale ([\w-]+)=", code)) <= set(services)
    assert set(re.findall(r"docker compose run (?:--\w+ )*([\w-]+)", code)) <= set(services)


@pages
def test_routes_and_their_parameters_exist(page, document):
    for match in _ROUTE.finditer(code_of(page)):
        path, _, query = match["path"].partition("?")
        if path == "/v1":  # what SDKs are given
            continue
        found = find_operations(document, path, match["method"])
        assert found, f"{match[0]}: no such route"
        named = set(re.findall(r"(?:^|&)(\w+)=", query))
        known = [{p["name"] for p in operation.get("parameters", [])} for operation in found]
        assert any(named <= names for names in known), match[0]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), redis_url="redis://127.0.0.1:1")
    return create_app(make_context(settings)).openapi()


def find_operations(document, path: str, method: str | None):
    """Return the operations that a path of the documentation may mean."""
    wanted = [part for part in path.rstrip("/.,").split("/") if part]
    found = []
    for template, operations in document["paths"].items():
        parts = [part for part in template.split("/") if part]
        if len(parts) == len(wanted) and all(
            here == there or (here.startswith("{") and not there.isalpha())
            for here, there in zip(parts, wanted, strict=True)
        ):
            found += [o for name, o in operations.items() if method in {None, name.upper()}]
    return found
