"""Word times from the forced aligner, on speech whose times are known."""

from dataclasses import replace
from statistics import median

import numpy as np
import pytest
import torch
from transformers import Qwen3ASRForTokenClassification, Qwen3ASRProcessor

from adapters.aligner.base import AlignmentRequest
from adapters.aligner.forced import ForcedAligner
from adapters.aligner.units import split_units
from adapters.base import LoadOptions
from adapters.qwen3_asr.adapter import Qwen3ASRAdapter
from core import errors
from core.options import Timestamps
from tests.adapters.qwen3.conftest import ALIGNER, ASR


@pytest.fixture(scope="session")
def aligner():
    return ForcedAligner.load(LoadOptions(folder=ALIGNER))


def request(clip, *, text=None, language="same"):
    return AlignmentRequest(
        samples=clip.samples,
        text=clip.text if text is None else text,
        language=clip.language if language == "same" else language,
    )


def test_words_begin_where_they_are_spoken(aligner, clips):
    short = [clip for clip in clips.values() if clip.text and len(clip.samples) < 5 * 16_000]
    errors_ms = [
        abs(word.start_ms - start_ms)
        for clip, alignment in zip(short, aligner.align([request(c) for c in short]), strict=True)
        for word, start_ms in zip(alignment.words, clip.word_starts_ms, strict=True)
    ]
    assert len(errors_ms) > 10
    assert median(errors_ms) <= 80


def test_times_are_the_references(aligner, clips):
    """Equal to transformers' own path where its times need no repair."""
    processor = Qwen3ASRProcessor.from_pretrained(ALIGNER)
    model = Qwen3ASRForTokenClassification.from_pretrained(ALIGNER, dtype=torch.float32).eval()
    for name in ("01", "03", "13"):
        clip = clips[name]
        inputs, words = processor.prepare_forced_aligner_inputs(
            [clip.samples], clip.text, clip.language
        )
        with torch.inference_mode():
            logits = model(**inputs).logits
        (expected,) = processor.decode_forced_alignment(
            logits, inputs["input_ids"], words, model.config.timestamp_token_id
        )
        (alignment,) = aligner.align([request(clip)])
        got = [(word.start_ms, word.end_ms) for word in alignment.words]
        want = [(round(w["start_time"] * 1000), round(w["end_time"] * 1000)) for w in expected]
        good = [pair for pair in zip(got, want, strict=True) if pair[1][0] < pair[1][1]]
        assert len(good) > 1 or name == "01"
        assert all(abs(g[0] - w[0]) <= 80 for g, w in good)
        assert sum(g == w for g, w in good) >= 0.7 * len(good)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello, it's 3.5% — really!", "en"),
        ("今天 iPhone很好，good morning。", "zh"),  # noqa: RUF001
        ("Ça va? L'été «à» Paris...", "fr"),
        ("'", "en"),
        ("", "en"),
    ],
)
def test_units_are_the_processors(text, language):
    processor = Qwen3ASRProcessor.from_pretrained(ALIGNER)
    expected = processor.split_words_for_alignment(text, language)
    assert [unit.text for unit in split_units(text)] == expected


def test_written_words_keep_punctuation_and_numbers(aligner, clips):
    text = "In “purple” water: close, 4.0 October!"
    (alignment,) = aligner.align([request(clips["03"], text=text)])
    assert [word.text for word in alignment.words] == [
        "In", "“purple”", "water:", "close,", "4.0", "October!",
    ]  # fmt: skip


def test_an_alignment_is_the_same_alone_and_in_a_batch(aligner, clips):
    requests = [request(clip) for clip in clips.values() if clip.text]
    assert aligner.align(requests) == [aligner.align([one])[0] for one in requests]


def test_what_cannot_be_aligned_has_no_words_and_says_why(aligner, clips):
    clip = clips["03"]
    long = replace(clip, samples=np.zeros(181 * 16_000, np.float32))
    alignments = aligner.align(
        [
            request(clip, language="sv"),
            request(clip, language=None),
            request(long),
            request(clip, text="…"),
            request(clip),
        ]
    )
    assert [alignment.warning for alignment in alignments] == [
        "words_unsupported_language",
        "words_unsupported_language",
        "words_window_too_long",
        None,
        None,
    ]
    assert [len(alignment.words) for alignment in alignments] == [0, 0, 0, 0, 6]


def test_more_words_than_milliseconds_is_no_crash(aligner, clips):
    clip = replace(clips["03"], samples=clips["03"].samples[:32])
    (alignment,) = aligner.align([request(clip, text="one two three four")])
    assert alignment.words == ()


def test_word_times_reach_the_hypothesis(asr_with_words, clips):
    names = ("01", "07", "13", "21")
    hypotheses = asr_with_words.transcribe(
        [clips[name].window(timestamps=Timestamps.WORD) for name in names]
    )
    for name, hypothesis in zip(names, hypotheses, strict=True):
        words = [word for segment in hypothesis.segments for word in segment.words]
        assert hypothesis.text == clips[name].text
        assert len(words) == len(clips[name].word_starts_ms)
        end_ms = 0
        for segment in hypothesis.segments:
            assert end_ms <= segment.start_ms == segment.words[0].start_ms
            for word in segment.words:
                assert end_ms <= word.start_ms < word.end_ms <= segment.end_ms
                end_ms = word.end_ms
        assert end_ms <= clips[name].window().duration_ms
        assert hypothesis.warnings == ()
    assert len(hypotheses[1].segments) > 1


def test_segments_are_real_without_words_asked_for(asr_with_words, asr, clips):
    with_times, plain = (
        adapter.transcribe([clips["07"].window()])[0] for adapter in (asr_with_words, asr)
    )
    assert len(with_times.segments) > 1 == len(plain.segments)
    assert with_times.text == plain.text
    assert all(segment.words == () for segment in with_times.segments)
    assert all(segment.tokens for segment in with_times.segments)


def test_words_in_another_language_are_a_warning(asr_with_words, clips):
    (hypothesis,) = asr_with_words.transcribe(
        [clips["03"].window(timestamps=Timestamps.WORD, language="sv")]
    )
    assert hypothesis.warnings == ("words_unsupported_language",)
    assert len(hypothesis.segments) == 1


def test_words_without_an_aligner_are_a_warning(asr, clips):
    (hypothesis,) = asr.transcribe([clips["03"].window(timestamps=Timestamps.WORD)])
    assert hypothesis.warnings == ("words_no_aligner",)
    assert hypothesis.text == clips["03"].text


def test_the_aligner_is_loaded_when_it_is_needed(clips, tmp_path):
    adapter = Qwen3ASRAdapter.load(
        LoadOptions(folder=ASR, extra={"aligner": str(tmp_path / "absent")})
    )
    window = clips["01"].window(timestamps=Timestamps.NONE)
    assert adapter.transcribe([window])[0].text == clips["01"].text
    with pytest.raises(errors.CheckpointInvalid):
        adapter.transcribe([replace(window, timestamps=Timestamps.WORD)])
    adapter.close()


def test_a_transcriber_is_no_aligner():
    with pytest.raises(errors.CheckpointInvalid):
        ForcedAligner.load(LoadOptions(folder=ASR))
