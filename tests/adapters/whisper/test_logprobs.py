"""Log probabilities of single tokens, where they are asked for."""

import math

import pytest

from core.logprobs import join_logprobs, trim_logprobs
from core.options import Timestamps


def text_of(tokens) -> str:
    return bytes(byte for token in tokens for byte in token.utf8).decode()


@pytest.mark.parametrize("clip", ["en", "ja", "sv"])
def test_the_tokens_of_a_segment_spell_its_text(whisper, window, clip):
    (answer,) = whisper.transcribe([window(clip, with_logprobs=True)])
    assert answer.segments
    for segment in answer.segments:
        assert text_of(trim_logprobs(segment.token_logprobs)) == segment.text
        assert len(segment.token_logprobs) == len(segment.tokens)
    assert text_of(join_logprobs(answer.segments)) == answer.text


def test_they_are_probabilities_that_make_the_mean(whisper, window):
    (answer,) = whisper.transcribe([window("en", with_logprobs=True, timestamps=Timestamps.NONE)])
    (segment,) = answer.segments
    logprobs = [token.logprob for token in segment.token_logprobs]
    assert all(logprob <= 0 for logprob in logprobs)
    # The mean counts the end of the text too, which the model is rather sure of.
    mean_without_end = math.fsum(logprobs) / (len(logprobs) + 1)
    assert segment.avg_logprob == pytest.approx(mean_without_end, abs=0.1)


def test_words_do_not_cost_them_and_nobody_else_gets_them(whisper, window):
    asking, other = whisper.transcribe(
        [
            window("en", with_logprobs=True, timestamps=Timestamps.WORD),
            window("sv"),
        ]
    )
    assert all(segment.words and segment.token_logprobs for segment in asking.segments)
    assert all(segment.token_logprobs == () for segment in other.segments)
