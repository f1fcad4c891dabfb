import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from cli import run_loop, steps
from cli import runner as module
from cli.client import NotNow, Refused
from cli.ledger import State, open_ledger
from cli.progress import ProgressView, Tally
from cli.runner import Runner
from cli.sources import Source
from cli.steps import Item, Plan, Steps
from cli.waiting import Stopped
from core.errors import ServiceUnavailable, Unauthenticated


class FakeServer:
    """Keeps jobs like the API does; each look brings a job one status further."""

    def __init__(self):
        self.jobs = {}
        self.calls = Counter()
        self.part_s = 0.0
        self.most_unfinished = 0
        self.on_submit = lambda path: None
        self._lock = threading.Lock()

    def add(self, reference, status="queued", job_id=None):
        with self._lock:
            job_id = job_id or str(len(self.jobs) + 1)
            self.jobs[job_id] = {
                "id": job_id,
                "status": status,
                "reference": reference,
                "duration_s": 10.0,
                "language": "en",
                "progress": {"audio_s_done": 5.0, "audio_s_total": 10.0},
                "error": {"code": "media_undecodable", "message": "it is no audio"},
            }
            unfinished = [j for j in self.jobs.values() if j["status"] in ("queued", "running")]
            self.most_unfinished = max(self.most_unfinished, len(unfinished))
            return dict(self.jobs[job_id])

    def submit(self, path, _options, *, reference):
        self.calls["submit"] += 1
        self.on_submit(path)
        return self.add(reference)

    def get_job(self, job_id):
        self.calls["get"] += 1
        if job_id not in self.jobs:
            raise Refused("job_not_found", "no such job")
        job = self.jobs[job_id]
        further = {"queued": "running", "running": "completed"}
        before = dict(job)
        job["status"] = further.get(job["status"], job["status"])
        return before

    def find_by_reference(self, reference):
        found = [job for job in self.jobs.values() if job["reference"] == reference]
        return dict(found[-1]) if found else None

    def get_transcript(self, job_id, format_name):
        return f"{format_name} of {job_id}\n".encode()

    def retry(self, job_id):
        self.calls["retry"] += 1
        self.jobs[job_id]["status"] = "queued"
        return dict(self.jobs[job_id])

    def delete(self, job_id):
        self.calls["delete"] += 1
        del self.jobs[job_id]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(run_loop, "_FIRST_LOOK_S", 0.001)
    monkeypatch.setattr(run_loop, "_SLOWEST_LOOK_S", 0.002)
    monkeypatch.setattr(run_loop, "_SLOWEST_RETRY_S", 0.002)


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path / "l.db") as opened:
        yield opened


@pytest.fixture
def run(tmp_path, server, ledger):
    stop = threading.Event()

    def make_item(name, entry=None):
        path = tmp_path / name
        path.write_bytes(b"x")
        source = Source(path=path, relative=Path(name), size_bytes=1, mtime_ns=1)
        return Item(source=source, stem=path.with_suffix(""), reference=f"ref-{name}", entry=entry)

    def start(*items, **plan):
        results = []
        tally = Tally(num_files=len(items), started_s=time.monotonic())
        options = {"formats": ("txt",), "with_text": False, "deletes_jobs": False, **plan}
        runner = Runner(
            steps=Steps(
                client=server, plan=Plan(options={}, fingerprint="f", **options), ledger=ledger
            ),
            ledger=ledger,
            tally=tally,
            view=ProgressView(tally),
            stop=stop,
            on_result=results.append,
        )
        start.results, start.tally = results, tally
        runner.run(items)
        return {result.path.name: result for result in results}

    start.item, start.stop = make_item, stop
    return start


def test_every_file_gets_its_transcripts_and_an_entry(run, ledger, tmp_path):
    items = [run.item(f"{number}.mp3") for number in range(40)]
    results = run(*items, formats=("txt", "srt"), with_text=True)
    assert {result.status for result in results.values()} == {"completed"}
    assert len(results) == 40
    for item in items:
        text = item.source.path.with_suffix(".txt").read_text()
        assert results[item.source.path.name].text == text.strip()
        assert item.source.path.with_suffix(".srt").read_text().startswith("srt of")
        assert ledger.is_done(item.source, "f")
    assert run.tally.done_s == 400.0


def test_jobs_on_the_server_are_bounded(run, server, monkeypatch):
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 5)
    run(*[run.item(f"{number}.mp3") for number in range(30)])
    assert server.most_unfinished <= 5


def test_a_refused_file_fails_alone_and_says_why(run, server, ledger):
    def refuse(path):
        if path.name == "bad.mp3":
            raise Refused("media_undecodable", "no audio")

    server.on_submit = refuse
    bad = run.item("bad.mp3")
    results = run(run.item("a.mp3"), bad, run.item("b.mp3"))
    assert (results["bad.mp3"].status, results["bad.mp3"].error_code) == (
        "failed",
        "media_undecodable",
    )
    assert results["a.mp3"].status == results["b.mp3"].status == "completed"
    assert ledger.find(bad.source, "f").state is State.FAILED


def test_a_file_that_vanishes_is_accounted_for(run, server):
    def vanish(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    server.on_submit = vanish
    results = run(run.item("a.mp3"))
    assert results["a.mp3"].error_code == "unreadable"


def test_a_folder_that_cannot_be_written_fails_the_file(run, tmp_path):
    item = run.item("a.mp3")
    (tmp_path / "taken").write_text("a file where a folder is needed")
    item.stem = tmp_path / "taken" / "a"
    results = run(item)
    assert results["a.mp3"].error_code == "output_unwritable"


def test_a_server_that_is_busy_is_asked_again(run, server):
    times = Counter()

    def busy(path):
        times[path.name] += 1
        if times[path.name] < 3:
            raise NotNow("too many", after_s=0.001)

    server.on_submit = busy
    results = run(run.item("a.mp3"), run.item("b.mp3"))
    assert {result.status for result in results.values()} == {"completed"}
    assert set(times.values()) == {3}


def test_a_file_over_which_the_server_breaks_is_given_up(run, server):
    def break_down(path):
        if path.name == "bad.mp3":
            raise NotNow("server error", after_s=0.001, is_fault=True)

    server.on_submit = break_down
    results = run(run.item("bad.mp3"), run.item("a.mp3"))
    assert results["bad.mp3"].error_code == "internal_error"
    assert results["a.mp3"].status == "completed"


def test_a_server_that_stays_away_ends_the_run(run, server, monkeypatch):
    monkeypatch.setattr(run_loop, "_PATIENCE_S", 0.02)

    def away(_path):
        raise NotNow("connection refused", after_s=0.001)

    server.on_submit = away
    with pytest.raises(ServiceUnavailable, match="connection refused"):
        run(run.item("a.mp3"))


def test_failures_between_parts_that_arrive_do_not_end_the_run(run, server, monkeypatch):
    monkeypatch.setattr(run_loop, "_PATIENCE_S", 0.02)
    times = Counter()

    def slow_line(path):
        times[path.name] += 1
        server.part_s = time.monotonic()
        if times[path.name] < 12:
            raise NotNow("the line broke", after_s=0.005)

    server.on_submit = slow_line
    results = run(run.item("a.mp3"))
    assert results["a.mp3"].status == "completed"


def test_a_wrong_key_ends_the_run_at_once(run, server):
    def refuse(_path):
        raise Unauthenticated("unknown key")

    server.on_submit = refuse
    with pytest.raises(Unauthenticated):
        run(run.item("a.mp3"))


def test_an_interrupted_run_goes_on_with_its_jobs(run, server, ledger):
    item = run.item("a.mp3")
    job = server.add(item.reference)
    ledger.record(item.source, "f", State.SUBMITTED, job_id=job["id"])
    results = run(run.item("a.mp3", entry=ledger.find(item.source, "f")))
    assert results["a.mp3"].status == "completed"
    assert server.calls["submit"] == 0


def test_an_upload_whose_answer_was_lost_is_found_by_its_reference(run, server, ledger):
    item = run.item("a.mp3")
    ledger.record(item.source, "f", State.SUBMITTING)
    server.add(item.reference)
    run(run.item("a.mp3", entry=ledger.find(item.source, "f")))
    assert server.calls["submit"] == 0


@pytest.mark.parametrize("state", [State.SUBMITTING, State.SUBMITTED])
def test_a_job_that_was_set_aside_is_resumed(run, server, ledger, state):
    item = run.item("a.mp3")
    job = server.add(item.reference, status="cancelled")
    job_id = job["id"] if state is State.SUBMITTED else None
    ledger.record(item.source, "f", state, job_id=job_id)
    results = run(run.item("a.mp3", entry=ledger.find(item.source, "f")))
    assert results["a.mp3"].status == "completed"
    assert (server.calls["retry"], server.calls["submit"]) == (1, 0)


def test_a_job_that_somebody_cancels_meanwhile_fails(run, server):
    original = server.add
    server.add = lambda reference: original(reference, status="cancelled")
    results = run(run.item("a.mp3"))
    assert results["a.mp3"].error_code == "cancelled"
    assert server.calls["retry"] == 0


def test_a_job_that_is_gone_is_made_again(run, server, ledger):
    item = run.item("a.mp3")
    ledger.record(item.source, "f", State.SUBMITTED, job_id="forgotten")
    results = run(run.item("a.mp3", entry=ledger.find(item.source, "f")))
    assert results["a.mp3"].status == "completed"
    assert server.calls["submit"] == 1


def test_stopping_leaves_submitted_jobs_in_the_ledger(run, server, ledger):
    first = run.item("0.mp3")

    def stop_later(path):
        if path.name == "5.mp3":
            run.stop.set()

    server.on_submit = stop_later
    server.get_job = lambda job_id: dict(server.jobs[job_id])  # nothing ever ends
    with pytest.raises(Stopped):
        run(first, *[run.item(f"{number}.mp3") for number in range(1, 10)])
    assert ledger.find(first.source, "f").state in (State.SUBMITTED, State.SUBMITTING)
    assert run.results == []


def test_a_transcript_that_is_written_while_the_run_stops_is_not_redone(
    run, server, ledger, monkeypatch
):
    is_interrupted = threading.Event()
    monkeypatch.setattr(ProgressView, "say", lambda *_: is_interrupted.set())
    fetch = server.get_transcript

    def stop_and_wait(job_id, format_name):
        run.stop.set()
        assert is_interrupted.wait(10)
        return fetch(job_id, format_name)

    server.get_transcript = stop_and_wait
    item = run.item("a.mp3")

    with pytest.raises(Stopped):
        run(item)

    assert item.source.path.with_suffix(".txt").exists()
    assert ledger.is_done(item.source, "f")


def test_transcripts_of_a_run_that_dies_before_its_entry_are_its_own(run, server, ledger):
    item = run.item("a.mp3")
    output = item.source.path.with_suffix(".txt")

    def die(_path, _data):
        assert ledger.is_ours(output, item.source)
        raise KeyboardInterrupt

    server.get_transcript = lambda *_: b"text"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "write_atomically", die)
        with pytest.raises(KeyboardInterrupt):
            run(item)

    assert ledger.is_ours(output, item.source)
    assert not ledger.is_done(item.source, "f")


def test_an_embedded_server_keeps_nothing_of_what_is_done(run, server):
    run(*[run.item(f"{number}.mp3") for number in range(5)], deletes_jobs=True)
    assert server.jobs == {}
