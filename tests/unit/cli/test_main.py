import errno
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import main, transcribe, up
from core.errors import AlreadyRunning

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run():
    runner = CliRunner()

    def invoke(*arguments):
        return runner.invoke(main.app, list(arguments), env={"NO_COLOR": "1", "COLUMNS": "200"})

    return invoke


def test_up_takes_what_the_design_promises(run, monkeypatch):
    seen = {}
    monkeypatch.setattr(up, "run", lambda **options: seen.update(options) or 0)
    result = run(
        *("up", "--host", "::1", "--port", "9000", "--data", "/d", "--workers", "2", "--no-auth"),
        *("--model", "a=/folder", "--model", "whisper-tiny", "--aligner", "x/y"),
    )
    assert result.exit_code == 0
    assert seen["models"] == ["a=/folder", "whisper-tiny"]
    assert (seen["host"], seen["port"], str(seen["data"])) == ("::1", 9000, "/d")
    assert (seen["workers"], seen["no_auth"], seen["aligner"]) == (2, True, "x/y")


def test_up_serves_loopback_only_unless_told_otherwise(run, monkeypatch):
    seen = {}
    monkeypatch.setattr(up, "run", lambda **options: seen.update(options) or 0)
    run("up")
    assert (seen["host"], seen["port"], seen["no_auth"]) == ("127.0.0.1", 8000, False)


def test_transcribe_takes_what_the_design_promises(run, monkeypatch):
    seen = []
    monkeypatch.setattr(transcribe, "run", lambda request: seen.append(request) or 1)
    result = run(
        *("transcribe", "a", "b*", "--model", "m", "--language", "de", "--format", "srt,vtt"),
        *("--output", "out", "--server", "http://x", "--jsonl"),
    )
    assert result.exit_code == 1
    request = seen[0]
    assert request.paths == ["a", "b*"]
    assert (request.model, request.language, request.formats) == ("m", "de", "srt,vtt")
    assert (str(request.output), request.server, request.as_jsonl) == ("out", "http://x", True)


@pytest.mark.parametrize(
    "arguments",
    [("transcribe",), ("up", "--port", "70000"), ("up", "--workers", "0"), ("nonsense",)],
)
def test_a_wrong_command_line_is_exit_code_2(run, arguments):
    assert run(*arguments).exit_code == 2


def test_an_error_of_ours_is_one_line_and_exit_code_1(monkeypatch, capsys):
    def fail():
        raise AlreadyRunning("Another process uses it.")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: Another process uses it.\n"


@pytest.mark.parametrize(
    "name",
    "up transcribe api worker beat migrate keys jobs models doctor version".split(),  # noqa: SIM905
)
def test_every_promised_command_is_there(run, name):
    assert run(name, "--help").exit_code == 0


def test_the_version_is_the_projects(run):
    version = importlib.metadata.version("scriptorium")
    assert run("version").output == f"{version}\n"


def test_ctrl_c_while_the_command_is_still_imported_ends_it_without_a_traceback():
    # A shell's background jobs, and so some CI, inherit an ignored SIGINT.
    ask = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import cli.entry; print(signal.getsignal(signal.SIGINT).name)"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "SIG_DFL"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"scriptorium": "cli.entry:main"}


def test_output_that_cannot_be_written_is_one_line_and_other_trouble_is_not_hidden(
    monkeypatch, capsys
):
    def fail_with(error: OSError) -> None:
        def app() -> None:
            raise error

        monkeypatch.setattr(main, "app", app)
        main.main()

    with pytest.raises(SystemExit) as end:
        fail_with(OSError(errno.ENOSPC, "No space left on device"))
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "error: the output cannot be written: No space left on device\n"
    )
    for other in (
        OSError(errno.ENOSPC, "No space left on device", "/a/file"),
        OSError(errno.EMFILE, "Too many open files"),
    ):
        with pytest.raises(OSError, match=other.strerror):
            fail_with(other)
