"""Starting and ending: nothing is left behind, nobody shares a data directory."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import KENNEDY, SAMPLES
from tests.e2e.test_recovery import check_complete, check_untouched
from tests.support.processes import Process, wait_for
from tests.support.stack import JOB_S, Stack, names, run_command, scriptorium

Start = Callable[..., Stack]


def test_ctrl_c_in_the_middle_of_a_job_leaves_nothing_and_the_next_start_goes_on(
    start: Start, long_recording: Path
) -> None:
    first = start()
    job_id = first.submit(long_recording)
    first.wait_for_windows(job_id, at_least=1)

    second = run_command("up", "--data", first.data, "--port", "0", env=first.env)
    assert second.returncode == 1
    assert "already" in second.stderr.lower() or "another" in second.stderr.lower(), second.stderr

    assert first.stop(signal.SIGINT) == 0, first.process.tail()
    assert first.leftovers() == []
    done = [w for w in first.windows(job_id) if w.finished_at is not None]
    assert done
    assert not any(w.status == "running" for w in first.windows(job_id)), "claims were not given up"

    again = start(key=first.key)
    again.finish(job_id)

    check_complete(again, job_id)
    check_untouched(again, job_id, done)
    assert again.stop(signal.SIGTERM) == 0
    assert again.leftovers() == []


def test_children_die_with_a_killed_parent_and_the_next_start_works(start: Start) -> None:
    first = start()
    first.remember_family()

    first.process.popen.kill()

    wait_for(lambda: not first.leftovers(), what="the children are gone", timeout_s=10)
    again = start(key=first.key)
    assert again.client.get("/health/ready").status_code == 200
    assert again.stop() == 0


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_transcribe_redoes_nothing(
    base_env: dict[str, str], tmp_path: Path, stop_signal: int
) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.flac").write_bytes(KENNEDY.read_bytes())
    for bad in ("bad 1.mp3", "bad 2.mp3"):
        (folder / bad).write_text("Dear reader, this is no music. " * 100)
    command = scriptorium("transcribe", folder, "--data", tmp_path / "data", "--format", "txt,json")
    outputs = tmp_path / "archive"

    def run(log: str) -> Process:
        return Process("transcribe", command, log=tmp_path / log, env=base_env)

    first = run("first.log")
    try:
        wait_for(
            lambda: list(outputs.glob("*.txt")),
            what="a transcript is written",
            timeout_s=JOB_S,
            process=first,
        )
        family = first.family()
        assert first.stop(stop_signal, timeout_s=60, kill_family=False) == 128 + stop_signal
        from tests.support.processes import still_alive

        assert still_alive(family) == []
    finally:
        first.stop()
    done = {path.name: path.stat().st_mtime_ns for path in outputs.glob("*.json")}
    assert len(done) > 0
    assert not list(outputs.glob("*.part*")), "half a transcript"

    second = run("second.log")
    assert second.popen.wait(JOB_S) == 1  # the two bad ones

    now = {path.name: path.stat().st_mtime_ns for path in outputs.glob("*.json")}
    assert set(now) == {f"{number}.json" for number in range(4)}
    assert {name: now[name] for name in done} == done
    assert f"{4 - len(done)} completed, {len(done)} skipped, 2 failed" in second.output()
    third = run_command(*command[1:], env=base_env)
    assert "0 completed, 4 skipped, 2 failed" in third.stdout + third.stderr


def test_the_samples_are_all_transcribed(stack: Stack, tmp_path: Path) -> None:
    done = run_command(
        "transcribe", SAMPLES, "--data", stack.data, "--output", tmp_path, env=stack.env
    )

    assert done.returncode == 0, done.stderr
    media = [p for p in SAMPLES.iterdir() if p.suffix in {".flac", ".ogg", ".mp3"}]
    assert names(list(tmp_path.rglob("*.txt"))) == names([p.with_suffix(".txt") for p in media])
    assert all(path.read_text().strip() for path in tmp_path.rglob("*.txt"))
