from pathlib import Path

import pytest

from cli.outputs import parse_formats, plan_stems, with_format, write_atomically
from cli.sources import Source
from core.errors import InvalidOption


def _source(path: str, relative: str | None = None) -> Source:
    return Source(
        path=Path(path), relative=Path(relative or Path(path).name), size_bytes=1, mtime_ns=1
    )


def _plan(*sources: Source, output: str | None = None, foreign: frozenset[str] = frozenset()):
    stems = plan_stems(
        sources, Path(output) if output else None, lambda _source, stem: str(stem) in foreign
    )
    return [str(stem) for stem in stems]


def test_a_transcript_lies_beside_its_recording_under_its_stem():
    assert _plan(_source("/r/talk.one.mp3")) == ["/r/talk.one"]
    assert with_format(Path("/r/talk.one"), "srt") == Path("/r/talk.one.srt")


def test_an_output_folder_mirrors_the_folders():
    assert _plan(_source("/r/sub/a.mp3", "sub/a.mp3"), output="/out") == ["/out/sub/a"]


def test_recordings_that_share_a_stem_keep_their_whole_names():
    planned = _plan(_source("/r/a.mp3"), _source("/r/a.wav"), _source("/r/b.wav"))
    assert planned == ["/r/a.mp3", "/r/a.wav", "/r/b"]


def test_names_that_some_file_systems_take_for_one_are_kept_apart():
    planned = _plan(
        _source("/r/Talk.mp3"),
        _source("/r/talk.wav"),
        _source("/r/Cafe\u0301.mp3"),
        _source("/r/Caf\u00e9.ogg"),
    )
    assert planned == ["/r/Talk.mp3", "/r/talk.wav", "/r/Cafe\u0301.mp3", "/r/Caf\u00e9.ogg"]


def test_equal_names_from_two_folders_in_one_output_folder_are_kept_apart():
    first, second = _plan(_source("/x/a.mp3"), _source("/y/a.mp3"), output="/out")
    assert first != second
    assert first.startswith("/out/a.mp3-")
    assert _plan(_source("/y/a.mp3"), _source("/x/a.mp3"), output="/out") == [second, first]


def test_a_stem_that_is_another_ones_whole_name_is_kept_apart():
    planned = _plan(_source("/r/a.mp3"), _source("/r/a.wav"), _source("/r/a.mp3.ogg"))
    assert len(set(planned)) == 3


def test_files_of_others_are_never_replaced():
    assert _plan(_source("/r/a.mp3"), foreign=frozenset({"/r/a"})) == ["/r/a.mp3"]
    planned = _plan(_source("/r/a.mp3"), foreign=frozenset({"/r/a", "/r/a.mp3"}))
    assert planned[0].startswith("/r/a.mp3-")


def test_formats_are_named_by_their_extensions():
    assert parse_formats(" TXT,srt,,txt ") == ("txt", "srt")


@pytest.mark.parametrize("text", ["", ",", "txt,docx", "text"])
def test_unknown_formats_are_refused_by_name(text):
    with pytest.raises(InvalidOption, match="txt,srt,vtt,json,tsv"):
        parse_formats(text)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomically(path, b"old")

    def fail(*_args):
        raise OSError("disk full")

    monkeypatch.setattr("cli.outputs.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folders_are_made(tmp_path):
    write_atomically(tmp_path / "x" / "y" / "a.txt", b"text")
    assert (tmp_path / "x" / "y" / "a.txt").read_bytes() == b"text"
