"""Every transcript format, and what subtitles promise to players."""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidOption
from core.formats import FORMATS, get_format
from core.formats.cues import CueStyle, plan_cues, text_width, wrap
from core.formats.times import format_clock
from core.transcript import Segment, Transcript, Word


def segment(text: str, start_ms: int, end_ms: int, **changes: object) -> Segment:
    return Segment(text=text, start_ms=start_ms, end_ms=end_ms, **changes)


def transcript(*segments: Segment, **changes: object) -> Transcript:
    fields = {"language": "en", "duration_ms": 12_000, "model": "whisper-base"} | changes
    return Transcript(segments=segments, **fields)


WORDY = transcript(
    segment(
        "Ten of clubs.",
        0,
        1500,
        words=(
            Word(text="Ten", start_ms=0, end_ms=400, probability=0.5),
            Word(text="of", start_ms=400, end_ms=600),
            Word(text="clubs.", start_ms=700, end_ms=1500),
        ),
        tokens=(1, 2),
        avg_logprob=-0.25,
        no_speech_prob=0.01,
        compression_ratio=1.1,
    ),
    segment("Go on.", 2000, 2500),
)


@pytest.mark.parametrize(
    ("time_ms", "mark", "expected"),
    [
        (11_540, ",", "00:00:11,540"),
        (60_000, ",", "00:01:00,000"),
        (3_723_004, ".", "01:02:03.004"),
        (360_000_000, ".", "100:00:00.000"),
    ],
)
def test_clock_times_have_hours_and_milliseconds(time_ms, mark, expected):
    assert format_clock(time_ms, decimal_mark=mark) == expected


def test_nothing_said_gives_an_empty_srt_and_a_bare_vtt_header():
    assert FORMATS["srt"].render(transcript()) == ""
    assert FORMATS["vtt"].render(transcript()) == "WEBVTT\n"
    assert FORMATS["text"].render(transcript()) == ""
    assert FORMATS["tsv"].render(transcript()) == "start\tend\ttext\n"
    assert json.loads(FORMATS["json"].render(transcript()))["segments"] == []


def test_srt_numbers_its_cues_and_uses_commas():
    assert FORMATS["srt"].render(WORDY) == (
        "1\n00:00:00,000 --> 00:00:01,500\nTen of clubs.\n\n"
        "2\n00:00:02,000 --> 00:00:02,833\nGo on.\n"
    )


def test_vtt_uses_points_and_no_numbers():
    assert FORMATS["vtt"].render(WORDY) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nTen of clubs.\n\n"
        "00:00:02.000 --> 00:00:02.833\nGo on.\n"
    )


@pytest.mark.parametrize("name", ["srt", "vtt"])
@pytest.mark.parametrize("text", ["a --> b", "a ----> b", "-->", "---->>"])
def test_an_arrow_in_a_text_never_looks_like_a_time_line(name, text):
    rendered = FORMATS[name].render(transcript(segment(text, 0, 2000)))
    assert rendered.count("-->") == 1


def test_vtt_escapes_markup():
    rendered = FORMATS["vtt"].render(transcript(segment("<b>R&D</b>", 0, 2000)))
    assert "&lt;b&gt;R&amp;D&lt;/b&gt;" in rendered


def test_a_blank_line_in_a_text_does_not_end_the_cue():
    rendered = FORMATS["srt"].render(transcript(segment("one\n\n2\ntwo", 0, 2000)))
    assert rendered == "1\n00:00:00,000 --> 00:00:02,000\none 2 two\n"


def test_tsv_has_whole_milliseconds_and_no_stray_tabs():
    assert FORMATS["tsv"].render(transcript(segment("a\tb\nc", 10, 20))) == (
        "start\tend\ttext\n10\t20\ta b c\n"
    )


def test_verbose_json_has_every_field_of_openai():
    document = json.loads(FORMATS["verbose_json"].render(WORDY))
    assert {"task", "language", "duration", "text", "segments", "words"} == set(document)
    assert document["segments"][0] == {
        "id": 0, "seek": 0, "start": 0.0, "end": 1.5, "text": "Ten of clubs.", "tokens": [1, 2],
        "temperature": 0.0, "avg_logprob": -0.25, "compression_ratio": 1.1, "no_speech_prob": 0.01,
    }  # fmt: skip
    assert document["words"][2] == {"word": "clubs.", "start": 0.7, "end": 1.5}
    assert document["duration"] == 12.0


def test_verbose_json_names_the_language_of_a_segment_that_is_in_another():
    document = json.loads(
        FORMATS["verbose_json"].render(
            transcript(
                segment("Guten Morgen.", 0, 900, language="de"),
                segment("Good morning.", 900, 1500, language="en"),
            )
        )
    )
    assert document["language"] == "en"
    assert [each.get("language") for each in document["segments"]] == ["de", None]


def test_json_keeps_channels_words_and_other_scripts_readable():
    rendered = FORMATS["json"].render(
        transcript(segment("你好", 0, 900, channel=1), segment("世界", 900, 1500, channel=0))
    )
    assert "你好世界" in rendered
    assert json.loads(rendered)["segments"][0]["channel"] == 1
    assert json.loads(FORMATS["json"].render(WORDY))["segments"][0]["words"][0] == {
        "word": "Ten", "start": 0.0, "end": 0.4, "probability": 0.5,
    }  # fmt: skip


def test_an_unknown_format_is_refused_with_a_list_of_the_known():
    with pytest.raises(InvalidOption, match="verbose_json") as caught:
        get_format("docx", param="response_format")
    assert caught.value.param == "response_format"


def test_long_segments_become_cues_of_two_short_lines_timed_by_their_words():
    words = tuple(
        Word(text=f"word{i:02d}", start_ms=i * 500, end_ms=i * 500 + 300) for i in range(24)
    )
    long = segment(" ".join(word.text for word in words), 0, 12_000, words=words)
    cues = plan_cues([long], CueStyle())
    assert " ".join(line for cue in cues for line in cue.lines) == long.text
    assert all(len(cue.lines) <= 2 for cue in cues)
    assert all(text_width(line) <= 42 for cue in cues for line in cue.lines)
    starts = {word.start_ms for word in words}
    assert all(cue.start_ms in starts for cue in cues)


def test_chinese_lines_break_between_characters_but_not_before_a_full_stop():
    text = "今天天气很好我们一起去公园散步吧然后去吃饭。" * 2
    lines = wrap(text, 42)
    assert "".join(lines) == text
    assert all(text_width(line) <= 44 for line in lines)
    assert not any(line.startswith("。") for line in lines)


def test_one_word_longer_than_a_line_is_cut_rather_than_lost():
    lines = wrap("x" * 100, 42)
    assert "".join(lines) == "x" * 100
    assert max(map(len, lines)) <= 42


def test_a_short_last_cue_is_not_drawn_out_beyond_the_media():
    [cue] = plan_cues([segment("Yes.", 11_700, 11_900)], CueStyle(), until_ms=12_000)
    assert cue.end_ms == 12_000


WORDS_OF_ALL_KINDS = st.text(
    alphabet=st.sampled_from([*"ab,. ->&<", "\n", "、", "。", "「", "日", "ไ", "้", "é"]),
    max_size=120,
)
SPANS = st.tuples(st.integers(0, 8_000_000), st.integers(0, 40_000))


@given(st.lists(st.tuples(WORDS_OF_ALL_KINDS, SPANS), max_size=8), st.sampled_from(["srt", "vtt"]))
def test_subtitles_of_any_transcript_are_valid(pieces, name):
    segments = [segment(text, start, start + length) for text, (start, length) in pieces]
    rendered = FORMATS[name].render(transcript(*segments, duration_ms=9_000_000))
    times = re.findall(r"(\S+) --> (\S+)", rendered)
    spans = [(_ms(start), _ms(end)) for start, end in times]
    assert rendered.count("-->") == len(spans)
    assert all(start < end for start, end in spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    if name == "vtt":
        assert "<" not in rendered


@given(st.lists(st.tuples(WORDS_OF_ALL_KINDS, SPANS), max_size=6))
def test_no_character_is_lost_between_segments_and_cues(pieces):
    segments = [segment(text, start, start + length) for text, (start, length) in pieces]
    cues = plan_cues(segments, CueStyle())
    said = sorted("".join("".join(part.text.split()) for part in segments))
    shown = sorted("".join("".join(line.split()) for cue in cues for line in cue.lines))
    assert shown == said
    assert all(len(cue.lines) <= 2 for cue in cues)


def _ms(clock: str) -> int:
    hours, minutes, seconds, millis = map(int, re.split(r"[:.,]", clock))
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis
