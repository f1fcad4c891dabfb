"""Rules of the house that no linter knows."""

import ast
import importlib.util
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("adapters", "api", "cli", "core", "lifecycle", "migrations", "models", "workers")
MAX_LINES = 450
MAX_CPU_S = 1.0


def modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def calls(tree: ast.AST, method: str) -> Iterator[int]:
    """Yield the lines that call a method of that name on anything, without arguments.

    None of SQLAlchemy's that begin or end a transaction takes any.
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
            and not node.args
        ):
            yield node.lineno


def reads_environment(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that name `os.environ` or `os.getenv`, or import either."""
    names = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in names:
                yield node.lineno
            case ast.ImportFrom(module="os", names=imported):
                if names & {alias.name for alias in imported}:
                    yield node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_the_repositorys_own(package: str) -> None:
    spec = importlib.util.find_spec(package)

    assert spec is not None
    assert spec.origin == str(ROOT / package / "__init__.py")


def test_only_the_unit_of_work_commits() -> None:
    committing = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules(*PACKAGES)
        if path != ROOT / "core/db.py" and "migrations" not in path.parts
        for method in ("commit", "begin", "begin_nested", "begin_twophase")
        for line in calls(ast.parse(path.read_text()), method)
    ]

    assert committing == []


def test_the_rule_about_commits_sees_those_that_are_allowed() -> None:
    assert list(calls(ast.parse((ROOT / "core/db.py").read_text()), "begin"))


def test_only_the_settings_read_the_environment() -> None:
    reading = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules(*PACKAGES)
        if path != ROOT / "core/settings.py"
        for line in reads_environment(ast.parse(path.read_text()))
    ]

    assert reading == []


def test_no_module_outgrows_one_idea() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in modules(*PACKAGES, "tests")
        if path.parent != ROOT / "migrations/versions"  # one step of the schema, however wide
    }

    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


def imported_by(statement: str) -> tuple[set[str], float]:
    """Return the modules loaded after `statement` in a fresh interpreter, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{statement}\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return set(done.stderr.splitlines()[-1].split()), cpu_s


HEAVY = {"torch", "transformers", "onnxruntime", "silero_vad"}


def test_the_api_loads_no_speech_model() -> None:
    loaded, _ = imported_by("import api.main")

    assert loaded & HEAVY == set()
    assert "fastapi" in loaded


def test_the_help_is_there_at_once() -> None:
    ask = "import cli.main\ntry: cli.main.app(['--help'])\nexcept SystemExit: pass"

    loaded, cpu_s = imported_by(ask)

    assert loaded & (HEAVY | {"sqlalchemy", "celery", "fastapi", "boto3", "numpy"}) == set()
    assert cpu_s < MAX_CPU_S


def test_unit_tests_need_no_speech_model() -> None:
    loaded, _ = imported_by("import tests.conftest")

    assert loaded & (HEAVY | {"boto3", "psycopg", "sqlalchemy"}) == set()
