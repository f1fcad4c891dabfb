"""What a listener reads of a window while its answer is written."""

from types import SimpleNamespace

from adapters.qwen3_asr.deltas import WindowDeltas

HEAD, PHRASE = "one two ", "blue people in my february "


def tell(answer: str) -> list[str]:
    """Return the pieces that come while `answer` is written, a token a word."""
    words = [word + " " for word in answer.split()]
    runtime = SimpleNamespace(
        control_tokens=(), decode_text=lambda tokens: "".join(words[token] for token in tokens)
    )
    pieces: list[str] = []
    deltas = WindowDeltas(runtime, 1, lambda _index, delta: pieces.append(delta))
    for word in words:
        deltas(0, words.index(word))
    return pieces


def test_no_word_of_a_passage_is_told_twice():
    told = "".join(tell(HEAD + PHRASE + PHRASE + "two we they"))
    assert told == (HEAD + PHRASE).strip()[:-1]  # a last letter may be the first of many


def test_a_passage_that_only_begins_alike_is_told_as_soon_as_that_is_known():
    said = HEAD + PHRASE + "blue people in the house"
    pieces = tell(said)
    assert "".join(pieces) == said[:-1]
    assert any("blue people in th" in piece for piece in pieces)
