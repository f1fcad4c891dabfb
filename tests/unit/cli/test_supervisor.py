import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cli import supervisor as module
from cli.supervisor import ChildSpec, Supervisor, backoff_s

_PYTHON = (sys.executable, "-I", "-S", "-c")


def _spec(code: str, *, name: str = "child", stage: int = 0, grace_s: float = 5.0, **more):
    return ChildSpec(
        name=name,
        command=(*_PYTHON, textwrap.dedent(code)),
        environment={},
        stage=stage,
        grace_s=grace_s,
        **more,
    )


def _until(condition, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that init has not reaped yet runs no more.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.fixture
def lines():
    return []


@pytest.fixture
def children(tmp_path, lines):
    supervisor = Supervisor(log_dir=tmp_path, report=lambda name, line: lines.append((name, line)))
    yield supervisor
    supervisor.stop()


_SLEEP = "import time; time.sleep(600)"


def test_a_child_that_is_killed_is_started_again(children, lines, monkeypatch):
    monkeypatch.setattr(module, "_BACKOFF_S", (0.01,))
    children.start(_spec(_SLEEP))
    _until(lambda: "child" in children.pids())
    first = children.pids()["child"]
    os.kill(first, signal.SIGKILL)
    _until(lambda: children.pids().get("child", first) != first)
    assert ("child", "ended with SIGKILL; starting it again in 0.01 s") in lines


def test_a_child_that_keeps_dying_at_the_start_is_given_up_with_its_last_words(
    children, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "_BACKOFF_S", (0.01,))
    children.start(_spec("print('no such model'); raise SystemExit(3)"))
    _until(lambda: children.find_failure() is not None)
    failure = children.find_failure()
    assert "ended 3 times while starting, last with exit code 3" in failure
    assert failure.endswith("no such model")
    assert str(tmp_path / "child.log") in failure


def test_once_settled_a_child_is_never_given_up(children, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BACKOFF_S", (0.01,))
    counter = tmp_path / "starts"
    children.start(_spec(f"open({str(counter)!r}, 'a').write('x')"))
    children.settle()
    _until(lambda: counter.exists() and len(counter.read_text()) > 5)
    assert children.find_failure() is None


def test_stopping_asks_stage_by_stage_and_waits_for_each(children, tmp_path):
    order = tmp_path / "order"
    code = """
        import signal, sys, time
        def end(*_):
            time.sleep({delay})
            open({path!r}, "a").write({name!r})
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        open({path!r} + {name!r}, "w")
        time.sleep(600)
    """
    for name, stage, delay in (("c", 2, 0), ("a", 0, 0.3), ("b", 1, 0.1)):
        children.start(
            _spec(code.format(delay=delay, path=str(order), name=name), name=name, stage=stage)
        )
    _until(lambda: all((tmp_path / f"order{name}").exists() for name in "abc"))
    children.stop()
    assert order.read_text() == "abc"


def test_a_child_that_ignores_the_request_is_killed_when_its_grace_is_over(children, tmp_path):
    ready = tmp_path / "ready"
    children.start(
        _spec(
            f"""
            import signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open({str(ready)!r}, "w")
            time.sleep(600)
            """,
            grace_s=0.2,
        )
    )
    _until(ready.exists)
    pid = children.pids()["child"]
    children.stop()
    assert not _is_alive(pid)


def test_what_a_child_started_dies_with_it(children, tmp_path):
    written = tmp_path / "pid"
    children.start(
        _spec(
            f"""
            import subprocess, sys, time
            process = subprocess.Popen([sys.executable, "-c", {_SLEEP!r}])
            open({str(written)!r}, "w").write(str(process.pid))
            time.sleep(600)
            """
        )
    )
    _until(lambda: written.exists() and written.read_text())
    grandchild = int(written.read_text())
    assert _is_alive(grandchild)
    children.stop()
    _until(lambda: not _is_alive(grandchild))


def test_nothing_is_started_after_the_stop(children, tmp_path):
    children.start(_spec(_SLEEP))
    children.stop()
    assert children.pids() == {}
    assert [t.name for t in threading.enumerate() if t.name.startswith("keeper")] == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no parent-death signal")
def test_children_die_with_a_supervisor_that_is_killed(tmp_path):
    # The child says that it runs: before that, it would end because its parent is another one.
    ready = tmp_path / "ready"
    child_code = f"open({str(ready)!r}, 'w'); {_SLEEP}"
    program = f"""
        import sys, time
        from pathlib import Path
        from cli.supervisor import ChildSpec, Supervisor
        supervisor = Supervisor(log_dir=Path({str(tmp_path)!r}), report=print)
        supervisor.start(ChildSpec(name="child", command={(*_PYTHON, child_code)!r},
                                   environment={{}}, stage=0, grace_s=1))
        while not (supervisor.pids() and Path({str(ready)!r}).exists()):
            time.sleep(0.01)
        print(supervisor.pids()["child"], flush=True)
        time.sleep(600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    with process:
        child = int(process.stdout.readline())
        assert _is_alive(child)
        process.kill()
    try:
        _until(lambda: not _is_alive(child))
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_an_inherited_descriptor_reaches_the_child(children, tmp_path):
    reader, writer = os.pipe()
    children.start(_spec(f"import os; os.write({writer}, b'hello')", pass_fds=(writer,)))
    assert os.read(reader, 5) == b"hello"
    children.stop()
    os.close(reader)
    os.close(writer)


def test_the_wait_before_a_restart_grows_to_a_limit():
    waits = [backoff_s(deaths) for deaths in range(1, 12)]
    assert waits == sorted(waits)
    assert waits[0] <= 1
    assert waits[-1] == waits[-2] == 30
