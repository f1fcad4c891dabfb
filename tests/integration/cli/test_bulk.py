"""`scriptorium transcribe --server`: parallel uploads, batches as they arrive, nothing twice."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from core.db import read_session
from models import Batch, Job, Media
from tests.integration.cli.conftest import PARTS_A_FILE
from tests.integration.cli.service import Service, finish, proxying
from tests.support.processes import Process, wait_for

Archive = Callable[[int], Path]


def jobs(service: Service) -> Counter[str]:
    """How many jobs there are for each file name."""
    with read_session(service.stack.context.sessions) as session:
        names = session.scalars(select(Media.filename).join(Job, Job.media_id == Media.id))
        return Counter(str(name) for name in names)


def texts(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text().strip() for path in folder.glob("*.txt")}


def count_batches(service: Service) -> int:
    with read_session(service.stack.context.sessions) as session:
        return session.scalar(select(func.count()).select_from(Batch)) or 0


def check_all_once(service: Service, folder: Path, num_files: int) -> None:
    """Every file has its transcript, and nothing was sent or made twice."""
    assert set(texts(folder)) == {str(number) for number in range(num_files)}
    assert len(set(texts(folder).values())) == num_files
    arrived = service.watched.arrived()
    assert len(arrived) == num_files * PARTS_A_FILE
    assert set(arrived.values()) == {1}
    assert jobs(service) == {f"{number}.wav": 1 for number in range(num_files)}


def test_a_folder_goes_over_in_batches_and_every_file_is_accounted_for(
    service: Service, archive: Archive
):
    folder = archive(8)
    (folder / "bad.mp3").write_text("Dear reader, this is no music. " * 100)
    (folder / "empty.mp3").write_bytes(b"")
    (folder / os.fsdecode(b"caf\xe9 \x07 \xe2\x80\x8e.wav")).write_bytes(
        (folder / "0.wav").read_bytes()
    )
    first = service.transcribe(folder, "--jsonl", "--format", "txt,srt")
    assert finish(first) == 1, first.output()
    results = [json.loads(line) for line in first.output().splitlines() if line.startswith("{")]
    assert Counter(result["status"] for result in results) == {"completed": 9, "failed": 2}
    errors = {Path(r["path"]).name: r["error"]["code"] for r in results if r["error"]}
    assert errors == {"bad.mp3": "media_undecodable", "empty.mp3": "media_empty"}
    assert len(list(folder.glob("*.srt"))) == 9
    done = next(result for result in results if result["path"].endswith("/3.wav"))
    assert (done["duration_s"], done["language"]) == (7.0, "en")
    assert done["text"] == texts(folder)["3"]
    assert "9 completed, 0 skipped, 2 failed" in first.output()
    assert service.watched.count("POST", "/v1/jobs") == 0
    assert 1 <= count_batches(service) <= 4

    service.watched.answers.clear()
    again = service.transcribe(folder, "--format", "txt,srt")
    assert finish(again) == 1
    assert "0 completed, 9 skipped, 2 failed" in again.output()
    assert set(service.watched.arrived().values()) == {1}, "the bad one alone is tried again"
    assert len(service.watched.arrived()) == 1


def test_the_first_transcript_does_not_wait_for_the_last_upload(service: Service, archive: Archive):
    folder = archive(4)
    uploads: dict[str, None] = {}
    held: list[str] = []

    def is_held(method: str, path: str) -> bool:
        """Hold the last upload until there is a transcript."""
        if method != "PUT":
            return False
        upload = path.split("/")[3]
        uploads.setdefault(upload)
        if list(uploads).index(upload) < 3 or texts(folder):
            return False
        held.append(upload)
        return True

    service.watched.is_held = is_held
    run = service.transcribe(folder)
    assert finish(run) == 0, run.output()
    assert held, "no upload was held"
    check_all_once(service, folder, 4)


def test_a_batch_whose_answer_is_lost_is_asked_for_again_and_made_once(
    service: Service, archive: Archive
):
    folder = archive(3)
    service.watched.is_lost = lambda method, path: (
        (method, path) == ("POST", "/v1/batches")
        and service.watched.count("POST", "/v1/batches") < 2
    )
    run = service.transcribe(folder)
    assert finish(run) == 0, run.output()
    assert service.watched.count("POST", "/v1/batches") > count_batches(service)
    check_all_once(service, folder, 3)


def test_connections_that_break_cost_no_part_that_has_arrived(service: Service, archive: Archive):
    folder = archive(3)
    # In the second part of a file, in the first of another, and in a connection's later life.
    with proxying(service.port, cuts=[100_000, 30_000, 180_000, 90_000]) as proxy:
        run = service.transcribe(folder, url=f"http://127.0.0.1:{proxy.port}")
        assert finish(run) == 0, run.output()
        assert proxy.num_cut == 4
    check_all_once(service, folder, 3)


@pytest.mark.parametrize(
    ("moment", "stop_signal"),
    [
        ("uploading", signal.SIGINT),
        ("uploading", signal.SIGKILL),
        ("batched", signal.SIGKILL),
    ],
)
def test_an_interrupted_run_uploads_nothing_twice_and_makes_no_job_twice(
    service: Service, archive: Archive, moment: str, stop_signal: int
):
    folder = archive(6)
    if moment == "uploading":
        service.watched.is_held = lambda method, _path: (
            method == "PUT" and len(service.watched.arrived()) >= 9
        )
    else:
        service.is_working.clear()
    first = service.transcribe(folder)
    try:
        reached = {
            "uploading": lambda: len(service.watched.arrived()) >= 9,
            "batched": lambda: (
                service.watched.count("POST", "/v1/batches", status=202)
                and len(service.watched.arrived()) == 24
            ),
        }
        wait_for(reached[moment], what=moment, process=first, timeout_s=60)
        code = stop(first, stop_signal, service)
    finally:
        first.stop()
    assert code == (130 if stop_signal == signal.SIGINT else -signal.SIGKILL)
    if stop_signal == signal.SIGINT:
        assert "The same command goes on where this stopped." in first.output()

    service.is_working.set()
    second = service.transcribe(folder)
    assert finish(second) == 0, second.output()
    check_all_once(service, folder, 6)


def stop(run: Process, stop_signal: int, service: Service) -> int:
    run.popen.send_signal(stop_signal)
    if stop_signal == signal.SIGINT:
        wait_for(
            lambda: "on its way" in run.output() or run.popen.poll() is not None, what="it stops"
        )
    service.watched.is_held = lambda _method, _path: False
    code = finish(run)
    # A killed client's last bytes may still be on their way in.
    wait_for(lambda: service.watched.num_open == 0, what="all requests have ended")
    return code


def test_a_restart_of_the_server_is_waited_for(service: Service, archive: Archive):
    folder = archive(6)
    service.is_working.clear()
    run = service.transcribe(folder)
    wait_for(lambda: len(service.watched.arrived()) >= 5, what="uploads begin", process=run)
    service.stop()
    wait_for(lambda: "waiting:" in run.output(), what="the run waits", process=run)
    service.start()
    service.is_working.set()
    assert finish(run) == 0, run.output()
    assert set(texts(folder)) == {str(number) for number in range(6)}
    assert jobs(service) == {f"{number}.wav": 1 for number in range(6)}


def test_an_upload_that_the_server_forgot_is_sent_again(service: Service, archive: Archive):
    folder = archive(2)
    service.is_working.clear()
    first = service.transcribe(folder)
    wait_for(
        lambda: (
            service.watched.count("POST", "/v1/batches", status=202)
            and len(service.watched.arrived()) == 8
        ),
        what="the batch is there",
        process=first,
        timeout_s=60,
    )
    first.popen.send_signal(signal.SIGKILL)
    finish(first)
    forgotten = {path.split("/")[3] for path in service.watched.arrived()}
    for upload_id in forgotten:
        service.stack.client.delete(
            f"/v1/uploads/{upload_id}", headers={"Authorization": f"Bearer {service.key}"}
        ).raise_for_status()

    service.is_working.set()
    second = service.transcribe(folder)
    assert finish(second) == 0, second.output()
    assert set(texts(folder)) == {"0", "1"}
    assert not forgotten & {path.split("/")[3] for path in list(service.watched.arrived())[8:]}


def test_a_key_that_is_wrong_ends_the_run_with_one_line(service: Service, archive: Archive):
    folder = archive(1)
    service.key = "sk-nonsense"
    run = service.transcribe(folder)
    assert finish(run) == 1
    assert run.output().strip().splitlines()[-1].startswith("error: ")
    assert "Traceback" not in run.output()
