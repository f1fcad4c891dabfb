import os
from pathlib import Path

import pytest

from cli.sources import find_sources, looks_like_media


def _touch(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _names(sources):
    return [str(source.relative) for source in sources]


def test_a_folder_gives_its_recordings_to_the_bottom_in_order(tmp_path):
    for name in ("b.mp3", "a.WAV", "sub/deep/c.opus", "sub/notes.txt", "d.ts"):
        _touch(tmp_path / name)
    found = find_sources([str(tmp_path)])
    assert _names(found.sources) == ["a.WAV", "b.mp3", "sub/deep/c.opus"]
    assert found.problems == []
    assert {path.name for path in found.others} == {"notes.txt", "d.ts"}


def test_hidden_files_and_folders_are_left_alone(tmp_path):
    for name in (".a.mp3", ".trash/b.mp3", "c.mp3"):
        _touch(tmp_path / name)
    found = find_sources([str(tmp_path)])
    assert _names(found.sources) == ["c.mp3"]


def test_a_recording_with_an_odd_name_is_known_by_its_content(tmp_path):
    _touch(tmp_path / "voicemail", b"RIFF\0\0\0\0WAVEfmt ")
    _touch(tmp_path / "memo.dat", b"\0\0\0\x20ftypM4A ")
    _touch(tmp_path / "broadcast.ts", (b"G" + bytes(187)) * 4)
    _touch(tmp_path / "letter", "\ufeffDear".encode("utf-16"))
    found = find_sources([str(tmp_path)])
    assert _names(found.sources) == ["broadcast.ts", "memo.dat", "voicemail"]


def test_a_file_that_is_named_is_taken_whatever_it_is_called(tmp_path):
    path = _touch(tmp_path / "strange.txt")
    found = find_sources([str(path)])
    assert _names(found.sources) == ["strange.txt"]


def test_one_recording_by_several_paths_is_one(tmp_path):
    path = _touch(tmp_path / "a.mp3")
    (tmp_path / "link.mp3").symlink_to(path)
    found = find_sources([str(path), str(tmp_path), str(tmp_path / "*.mp3")])
    assert _names(found.sources) == ["a.mp3"]


def test_globs_are_expanded_and_what_they_do_not_match_is_told(tmp_path):
    _touch(tmp_path / "x" / "a.mp3")
    _touch(tmp_path / "x" / "b.wav")
    found = find_sources([str(tmp_path / "**" / "*.mp3"), str(tmp_path / "*.ogg")])
    assert _names(found.sources) == ["a.mp3"]
    assert [(problem.path.name, problem.reason) for problem in found.problems] == [
        ("*.ogg", "no such file or folder")
    ]


def test_a_name_with_glob_characters_is_that_file(tmp_path):
    path = _touch(tmp_path / "talk [1].mp3")
    found = find_sources([str(path)])
    assert _names(found.sources) == ["talk [1].mp3"]


def test_what_is_missing_or_dangling_or_no_file_is_accounted_for(tmp_path):
    (tmp_path / "gone.mp3").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.mp3")
    found = find_sources([str(tmp_path), str(tmp_path / "missing.mp3")])
    assert found.sources == []
    assert {(problem.path.name, problem.reason) for problem in found.problems} == {
        ("gone.mp3", "no such file or directory"),
        ("pipe.mp3", "not an ordinary file"),
        ("missing.mp3", "no such file or folder"),
    }


def test_names_that_are_no_text_are_found(tmp_path):
    raw = os.fsencode(tmp_path) + b"/caf\xe9.mp3"
    Path(os.fsdecode(raw)).write_bytes(b"x")
    found = find_sources([str(tmp_path)])
    assert [os.fsencode(source.path) for source in found.sources] == [raw]


@pytest.mark.parametrize(
    "head",
    [b"fLaC\0\0\0\x22", b"OggS\0\x02", b"ID3\x04", b"\x1aE\xdf\xa3", b"\xff\xfb\x90d", b"#!AMR\n"],
)
def test_openings_of_media_are_known(head):
    assert looks_like_media(head.ljust(16, b"\0"))


@pytest.mark.parametrize(
    "head", [b"", b"\xff", b"\xff\xfeD\0e\0", b"RIFF\0\0\0\0WEBP", b"%PDF-1.7"]
)
def test_openings_of_other_files_are_not(head):
    assert not looks_like_media(head)
