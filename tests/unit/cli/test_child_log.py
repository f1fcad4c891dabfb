import io
import json

from cli import child_log
from cli.child_log import ChildLog, find_complaint


def test_warnings_are_shown_and_everything_is_kept(tmp_path):
    shown = []
    log = ChildLog(tmp_path / "api.log", show=shown.append)
    info = json.dumps({"level": "info", "event": "job.claimed"})
    warning = json.dumps({"level": "warning", "event": "event.dropped", "seq": 3})
    log.pump(io.BytesIO(f"{info}\n{warning}\nTraceback …\n".encode()))
    log.close()
    assert shown == ["warning event.dropped seq=3"]
    assert (tmp_path / "api.log").read_text() == f"{info}\n{warning}\nTraceback …\n"


def test_verbose_shows_every_line(tmp_path):
    shown = []
    log = ChildLog(tmp_path / "api.log", show=shown.append, is_verbose=True)
    log.pump(io.BytesIO(b"one\ntwo\n"))
    log.close()
    assert shown == ["one", "two"]


def test_the_log_of_the_run_before_is_kept_once(tmp_path):
    for text in (b"first\n", b"second\n", b"third\n"):
        log = ChildLog(tmp_path / "api.log", show=print)
        log.pump(io.BytesIO(text))
        log.close()
    assert (tmp_path / "api.log").read_text() == "third\n"
    assert (tmp_path / "api.log.1").read_text() == "second\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_log_does_not_grow_without_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(child_log, "_MAX_BYTES", 100)
    log = ChildLog(tmp_path / "api.log", show=print)
    log.pump(io.BytesIO(b"0123456789\n" * 100))
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 250


def test_lines_that_only_look_like_json_are_no_complaints():
    assert find_complaint('{"level": "warning"') is None
    assert find_complaint("plain text") is None
    assert find_complaint('{"level": "info", "event": "x"}') is None


def test_a_warning_that_repeats_is_shown_once(tmp_path):
    shown = []
    log = ChildLog(tmp_path / "api.log", show=shown.append)
    for seq in range(5):
        line = json.dumps({"level": "warning", "event": "event.dropped", "seq": seq})
        log.pump(io.BytesIO(f"{line}\n".encode()))
    log.close()
    assert shown == ["warning event.dropped seq=0"]
    assert len((tmp_path / "api.log").read_text().splitlines()) == 5
