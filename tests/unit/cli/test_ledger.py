import os
from dataclasses import replace
from pathlib import Path

import pytest

from cli.ledger import Manifest, State, Transfer, fingerprint_of, open_ledger
from cli.sources import Source


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path / "transcribe.db") as opened:
        yield opened


@pytest.fixture
def source(tmp_path):
    name = os.fsdecode(b"caf\xe9.mp3")  # a name that is no UTF-8
    return Source(path=tmp_path / name, relative=Path(name), size_bytes=10, mtime_ns=20)


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("text")
    return path


def test_a_file_is_done_once_its_transcripts_are_written(ledger, source, transcript):
    assert not ledger.is_done(source, "f")
    ledger.record(source, "f", State.SUBMITTED, job_id="1")
    assert not ledger.is_done(source, "f")
    ledger.record(source, "f", State.DONE, job_id="1", outputs=[transcript])
    assert ledger.is_done(source, "f")


@pytest.mark.parametrize("change", [{"size_bytes": 11}, {"mtime_ns": 21}])
def test_a_file_that_changed_is_unknown_again(ledger, source, transcript, change):
    ledger.record(source, "f", State.DONE, outputs=[transcript])
    assert ledger.find(replace(source, **change), "f") is None


def test_other_settings_are_another_entry(ledger, source, transcript):
    ledger.record(source, "f", State.DONE, outputs=[transcript])
    assert not ledger.is_done(source, "g")


def test_a_transcript_that_was_removed_is_made_again(ledger, source, transcript):
    ledger.record(source, "f", State.DONE, outputs=[transcript])
    transcript.unlink()
    assert not ledger.is_done(source, "f")


def test_a_failed_file_is_not_done(ledger, source):
    ledger.record(source, "f", State.FAILED, job_id="1")
    assert not ledger.is_done(source, "f")


def test_entries_outlive_the_process(tmp_path, source):
    with open_ledger(tmp_path / "l.db") as first:
        first.record(source, "f", State.SUBMITTED, job_id="7")
    with open_ledger(tmp_path / "l.db") as second:
        entry = second.find(source, "f")
    assert (entry.state, entry.job_id) == (State.SUBMITTED, "7")


def test_a_batch_is_kept_until_the_last_of_its_files_has_a_result(ledger, source):
    sources = [replace(source, path=source.path.with_name(name)) for name in ("a", "b")]
    for each in sources:
        transfer = Transfer(upload_id=each.path.name, is_complete=True)
        ledger.record(each, "f", State.SUBMITTING, transfer=transfer)
    ledger.ship(Manifest(key="k", body=b"lines"), sources, "f")
    entry = ledger.find(sources[0], "f")
    assert entry.transfer == Transfer(upload_id="a", is_complete=True, batch_key="k")
    assert ledger.find_manifest("k") == Manifest(key="k", body=b"lines")
    ledger.note_batch("k", "7")
    ledger.record(sources[0], "f", State.DONE)
    assert ledger.find(sources[0], "f").transfer is None
    assert ledger.find_manifest("k") == Manifest(key="k", body=b"", batch_id="7")
    ledger.record(sources[1], "f", State.FAILED)
    assert ledger.find_manifest("k") is None


def test_a_transfer_is_forgotten_with_the_file_it_was_of(ledger, source):
    ledger.record(source, "f", State.SUBMITTING, transfer=Transfer(upload_id="1"))
    changed = replace(source, mtime_ns=21)
    assert ledger.find(changed, "f") is None
    ledger.record(changed, "f", State.SUBMITTING, transfer=Transfer(upload_id="2"))
    assert ledger.find(changed, "f").transfer.upload_id == "2"


def test_a_transcript_is_ours_only_for_the_recording_it_was_made_from(ledger, source, transcript):
    ledger.record(source, "f", State.DONE, outputs=[transcript])
    assert ledger.is_ours(transcript, source)
    other = replace(source, path=source.path.with_name("other.mp3"))
    assert not ledger.is_ours(transcript, other)


def test_two_runs_may_write_at_the_same_time(tmp_path, source):
    with open_ledger(tmp_path / "l.db") as first, open_ledger(tmp_path / "l.db") as second:
        for number in range(50):
            first.record(source, f"a{number}", State.SUBMITTING)
            second.record(source, f"b{number}", State.SUBMITTING)
        assert first.find(source, "b49") is not None


def test_fingerprints_depend_on_values_not_on_order():
    assert fingerprint_of({"a": 1, "b": 2}) == fingerprint_of({"b": 2, "a": 1})
    assert fingerprint_of({"a": 1}) != fingerprint_of({"a": 2})
