"""Log probabilities of single tokens, where they are asked for."""

import pytest

from core.logprobs import join_logprobs, trim_logprobs


def text_of(tokens) -> str:
    return bytes(byte for token in tokens for byte in token.utf8).decode()


@pytest.mark.parametrize("language", [None, "en"])
def test_the_tokens_of_an_answer_spell_its_text(asr, clips, language):
    windows = [
        clip.window(language=language, with_logprobs=True)
        for clip in clips.values()
        if clip.language == "en"
    ]
    heard = [one for one in asr.transcribe(windows) if one.segments]
    assert heard
    for one in heard:
        (segment,) = one.segments
        assert text_of(join_logprobs(one.segments)) == segment.text
        assert all(token.logprob <= 0 for token in segment.token_logprobs)


def test_they_are_what_the_mean_is_made_of(asr, clips):
    clip = next(clip for clip in clips.values() if clip.language == "en")
    (one,) = asr.transcribe([clip.window(language="en", with_logprobs=True)])
    (segment,) = one.segments
    total = segment.avg_logprob * (len(segment.token_logprobs) + 1)
    end = total - sum(token.logprob for token in segment.token_logprobs)
    assert -1.0 < end < 0.01  # what is missing is the end token's


def test_nobody_else_gets_them(asr, clips):
    (one,) = asr.transcribe([next(iter(clips.values())).window()])
    assert all(segment.token_logprobs == () for segment in one.segments)


def test_segments_of_an_aligned_answer_have_their_own_tokens(asr_with_words, clips):
    windows = [
        clip.window(with_logprobs=True) for clip in clips.values() if clip.language in ("en", "zh")
    ]
    cut = [one for one in asr_with_words.transcribe(windows) if len(one.segments) > 1]
    assert cut
    for one in cut:
        for segment in one.segments:
            assert text_of(trim_logprobs(segment.token_logprobs)) == segment.text
