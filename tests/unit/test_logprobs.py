import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.formats import get_format
from core.logprobs import (
    describe_logprobs,
    fit_logprobs,
    graft_logprobs,
    join_logprobs,
    split_logprobs,
    trim_logprobs,
)
from core.transcript import Segment, TokenLogprob, Transcript, join_texts


def tokens(*pieces: bytes) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(utf8=tuple(piece), logprob=-index / 10) for index, piece in enumerate(pieces)
    )


def segment(text: str, *pieces: bytes, start_ms: int = 0) -> Segment:
    return Segment(
        text=text, start_ms=start_ms, end_ms=start_ms + 100, token_logprobs=tokens(*pieces)
    )


def joined(found: tuple[TokenLogprob, ...]) -> str:
    return b"".join(bytes(token.utf8) for token in found).decode()


@pytest.mark.parametrize(
    "segments",
    [
        [segment("Hello there.", b" Hello", b" there", b"."), segment("Yes.", b" Yes", b".")],
        [segment("Hello", b" ", b"Hel", b"lo", b" "), segment("you", b"you")],
        [segment("今日は", "今日".encode(), "は".encode()), segment("はい", "はい".encode())],
        [segment("今日は", "今日は".encode()), segment("Yes", b" Yes")],
        [segment("é", b" \xc3", b"\xa9"), segment("b", b" b")],
        [segment("a", b"a"), segment("from elsewhere"), segment("b", b" b")],
        [],
    ],
)
def test_the_tokens_of_a_transcript_join_to_its_text(segments):
    without = [each for each in segments if not each.token_logprobs]
    text = join_texts(each.text for each in segments)
    for each in without:
        text = text.replace(f" {each.text}", "")
    assert joined(join_logprobs(segments)) == text


def test_every_logprob_stays_with_its_token():
    found = join_logprobs([segment("Hello.", b" ", b"Hello", b"."), segment("Yes", b" Yes")])
    assert [(bytes(each.utf8), each.logprob) for each in found] == [
        (b"Hello", -0.1),
        (b".", -0.2),
        (b" Yes", 0.0),
    ]


def test_white_space_alone_leaves_nothing():
    assert trim_logprobs(tokens(b" ", b"\n")) == ()


def test_pieces_get_the_tokens_of_their_own_text():
    found = split_logprobs(
        tokens(b" Hel", b"lo", b".", b" How", b" are", b" you"), ["Hello.", "How are", "you"]
    )
    assert [joined(piece) for piece in found] == [" Hello.", " How are", " you"]


def test_what_no_text_has_goes_to_the_last_piece():
    found = split_logprobs(tokens(b"ha", b" ha", b" ha", b" ha"), ["ha", "ha"])
    assert [len(piece) for piece in found] == [1, 3]
    assert split_logprobs(tokens(b"a"), []) == []


@given(st.lists(st.text(alphabet="abé今 ", max_size=6)), st.lists(st.binary(max_size=4)))
def test_splitting_loses_and_doubles_no_token(texts, pieces):
    found = split_logprobs(tokens(*pieces), texts)
    assert len(found) == len(texts)
    assert [token for piece in found for token in piece] == (list(tokens(*pieces)) if texts else [])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one two three four", "one two three four"),  # the seam lies between tokens
        ("one two thr four", "one two four"),  # a token across the seam
        ("one two la la", "one two la la"),  # all of the first reading
        ("three four", "three four"),  # all of the second
        ("", ""),
    ],
)
def test_a_grafted_text_has_the_tokens_of_both_readings(text, kept):
    first = tokens(b"one", b" two", b" la", b" la")
    second = tokens(b" two", b" three", b" four")
    found = graft_logprobs(text, first, second)
    assert joined(trim_logprobs(found)) == kept


def test_half_a_character_is_shown_by_its_bytes():
    assert describe_logprobs(tokens(b"\xc3", b"\xa9")) == [
        {"token": "\ufffd", "bytes": [0xC3], "logprob": 0.0},
        {"token": "\ufffd", "bytes": [0xA9], "logprob": -0.1},
    ]


def test_json_shows_them_where_they_were_asked_for():
    def rendered(*segments: Segment) -> str:
        transcript = Transcript(segments=segments, language="en", duration_ms=1000)
        return get_format("json").render(transcript)

    assert '"logprobs": [{"token": "Yes", "bytes": [89, 101, 115], "logprob": 0.0}]' in rendered(
        segment("Yes", b" Yes")
    )
    assert "logprobs" not in rendered(segment("Yes"))


def test_tokens_fit_the_white_space_of_their_piece():
    assert joined(fit_logprobs("Hello", tokens(b" ", b"Hel", b"lo", b" "))) == "Hello"
    assert joined(fit_logprobs("\n Hello", tokens(b"Hel", b"lo"))) == "\n Hello"
    late = tokens(b" by")  # the letter before came with the token that began it
    assert fit_logprobs("t by", late) == late
    assert fit_logprobs(" x", ()) == ()
