import pytest

from adapters.tokens import spell_tokens, token_bytes


@pytest.mark.parametrize(
    ("piece", "data"),
    [
        ("Hello", b"Hello"),
        ("Ġthere", b" there"),
        ("Ċ", b"\n"),
        ("Ã©", "é".encode()),
        ("ä»Ĭ", "今".encode()),
        ("Ãł", b"\xc3\xa0"),
        ("â", b"\xe2"),
    ],
)
def test_pieces_stand_for_bytes(piece, data):
    assert token_bytes(piece) == data


def test_all_bytes_can_be_spelt():
    from adapters.tokens import _bytes_by_char

    assert sorted(_bytes_by_char().values()) == list(range(256))


def test_every_piece_keeps_its_logprob():
    tokens = spell_tokens(["ä»", "Ĭ", "Ġa"], [-0.1234567, 0.0, -2.0])
    assert b"".join(bytes(token.utf8) for token in tokens).decode() == "今 a"
    assert [token.logprob for token in tokens] == [-0.12346, 0.0, -2.0]
