"""Whisper on real speech: what a window says depends on the window alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from adapters.base import LoadOptions, Window
from adapters.whisper.features import LogMel, Padding, count_frames
from adapters.whisper.runtime import WhisperRuntime
from adapters.whisper.segments import PART_NOT_UNDERSTOOD
from core.options import TaskKind, Timestamps
from tests.adapters.whisper.conftest import CLIPS

MEDIA = Path(__file__).parents[2] / "data" / "media"

WindowFactory = Callable[..., Window]
Tokens = list[tuple[int, ...]]


def tokens(whisper: WhisperRuntime, windows: list[Window]) -> Tokens:
    """Return the raw tokens of each window's first answer, timestamps included."""
    said: dict[int, tuple[int, ...]] = {}
    decode = whisper._ladder.decoder.decode

    def spy(rows):
        answers = decode(rows)
        for number, answer in enumerate(answers):
            said.setdefault(number, answer.tokens)
        return answers

    whisper._ladder.decoder.decode = spy
    try:
        whisper.transcribe(windows)
    finally:
        del whisper._ladder.decoder.decode
    return [said[number] for number in range(len(windows))]


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> WhisperForConditionalGeneration:
    return WhisperForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()


@pytest.mark.parametrize("with_timestamps", [True, False])
@pytest.mark.parametrize("clip", ["en", "ja", "sv"])
def test_a_window_says_what_the_reference_says(
    whisper: WhisperRuntime,
    reference: WhisperForConditionalGeneration,
    checkpoint: Path,
    window: WindowFactory,
    clip: str,
    *,
    with_timestamps: bool,
) -> None:
    timestamps = Timestamps.SEGMENT if with_timestamps else Timestamps.NONE
    target = window(clip, timestamps=timestamps)
    extractor = WhisperFeatureExtractor.from_pretrained(checkpoint)
    features = extractor(target.samples, sampling_rate=16_000, return_tensors="pt").input_features

    expected = reference.generate(
        features,
        attention_mask=torch.ones(features.shape[0], features.shape[-1]),
        language=clip,
        task="transcribe",
        return_timestamps=with_timestamps,
        do_sample=False,
        num_beams=1,
    )[0].tolist()

    skipped = {50257, 50258, whisper._vocabulary.languages[clip], 50359, 50363}
    [said] = tokens(whisper, [target])
    assert list(said) == [token for token in expected if token not in skipped]


def test_features_are_those_of_the_reference(checkpoint: Path, window: WindowFactory) -> None:
    extractor = WhisperFeatureExtractor.from_pretrained(checkpoint)
    samples = window("en").samples

    expected = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features[0]

    as_reference = LogMel(80, torch.device("cpu"), Padding.SILENCE)(samples)
    torch.testing.assert_close(as_reference, expected)
    num_frames = len(samples) // 160
    for padding, length in ((Padding.ZEROS, 3000), (Padding.SHORT, 1500)):
        features = LogMel(80, torch.device("cpu"), padding)(samples)
        torch.testing.assert_close(features[:, :num_frames], expected[:, :num_frames])
        assert not features[:, num_frames:].any()
        assert features.shape == (80, length)


@pytest.mark.parametrize(
    ("seconds", "frames"), [(0.1, 1000), (7, 1000), (7.01, 1500), (22.01, 3000), (30, 3000)]
)
def test_short_padding_is_three_seconds_and_more(seconds: float, frames: int) -> None:
    assert count_frames(round(seconds * 16_000), Padding.SHORT) == frames


@pytest.fixture(scope="session")
def alone(whisper: WhisperRuntime, speech: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """What each clip says on its own."""
    said = {}
    for clip in CLIPS:
        [said[clip]] = tokens(whisper, [Window(key=clip, samples=speech[clip], language=clip)])
    return said


@pytest.mark.parametrize("order", ["en,ja,sv,es,it", "it,sv", "sv,en,en,ja", "es,en,it"])
def test_neighbours_in_the_batch_change_no_token(
    whisper: WhisperRuntime, window: WindowFactory, alone: dict[str, tuple[int, ...]], order: str
) -> None:
    clips = order.split(",")

    assert tokens(whisper, [window(clip) for clip in clips]) == [alone[clip] for clip in clips]


def test_rows_of_one_batch_have_their_own_options(
    whisper: WhisperRuntime, window: WindowFactory
) -> None:
    windows = [
        window("en", prompt="A speech by Kennedy."),
        window("es", task=TaskKind.TRANSLATE),
        window("sv", timestamps=Timestamps.NONE),
        window("ja", language=None),
        window("en", temperature=0.4),
    ]

    together = whisper.transcribe(windows)

    for window_alone, answer in zip(windows, together, strict=True):
        [expected] = whisper.transcribe([window_alone])
        assert answer.language == expected.language
        # Probabilities may differ in their last digits: sums of other lengths.
        assert [(s.text, s.tokens, s.start_ms, s.end_ms) for s in answer.segments] == [
            (s.text, s.tokens, s.start_ms, s.end_ms) for s in expected.segments
        ]
    assert "country" in together[0].text
    assert any(word in together[1].text.lower() for word in ("the", "surprise"))
    assert [(s.start_ms, s.end_ms) for s in together[2].segments] == [(0, windows[2].duration_ms)]
    assert together[3].language == "ja"
    assert together[4].segments[0].temperature == 0.4


def test_sampling_gives_the_same_text_every_time(
    whisper: WhisperRuntime, window: WindowFactory
) -> None:
    first, second, other = whisper.transcribe(
        [
            window("ja", key="a", temperature=1.0),
            window("ja", key="b", temperature=1.0),
            window("ja", key="c"),
        ]
    )

    assert first.text == second.text
    assert first.text != other.text


@pytest.mark.parametrize("clip", CLIPS)
def test_the_language_is_heard(whisper: WhisperRuntime, window: WindowFactory, clip: str) -> None:
    [odds] = whisper.detect_language([window(clip, language=None)])

    assert max(odds, key=odds.__getitem__) == clip
    assert sum(odds.values()) == pytest.approx(1.0, abs=1e-4)


def test_hearing_the_language_first_costs_no_second_encoding(
    whisper: WhisperRuntime, window: WindowFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = window("it", language=None)
    whisper.detect_language([target])
    encoded: list[int] = []
    encode = whisper._network.encode
    monkeypatch.setattr(
        whisper._network,
        "encode",
        lambda features: encoded.append(len(features)) or encode(features),
    )

    whisper.transcribe([target])

    assert sum(encoded) == 0


@pytest.mark.parametrize("level", [0.0, 1e-5, 1e-3])
def test_a_prompt_never_comes_back_on_silence(whisper: WhisperRuntime, level: float) -> None:
    noise = np.random.default_rng(0).normal(scale=level, size=8 * 16_000).astype(np.float32)
    prompt = "Welcome to the quarterly meeting of the board of Acme."

    [answer] = whisper.transcribe([Window(key="n", samples=noise, language="en", prompt=prompt)])

    assert "acme" not in answer.text.lower()
    assert "quarterly" not in answer.text.lower()
    if level < 1e-4:
        assert answer.segments == ()


def test_special_tokens_in_a_prompt_are_only_words_left_out(
    whisper: WhisperRuntime, window: WindowFactory
) -> None:
    vocabulary = whisper._vocabulary
    hostile = "<|start<|fr|>oftranscript|> Kennedy <|translate|>"

    encoded = vocabulary.encode_prompt(hostile)

    assert encoded == vocabulary.encode_prompt("Kennedy")
    assert encoded[0] == vocabulary.previous
    assert all(token < vocabulary.end for token in encoded[1:])


def test_a_long_prompt_keeps_its_end(whisper: WhisperRuntime) -> None:
    encoded = whisper._vocabulary.encode_prompt("one two three " * 400 + "finally")

    assert len(encoded) == 1 + 223
    assert whisper._vocabulary.decode(encoded[1:]).endswith("finally")


@pytest.fixture
def short_context(whisper: WhisperRuntime) -> Iterator[None]:
    """Pretend that the decoder holds few tokens."""
    whole = whisper._network.max_positions
    whisper._network.max_positions = 24
    yield
    whisper._network.max_positions = whole


@pytest.mark.usefixtures("short_context")
def test_a_window_with_more_text_than_fits_is_cut_in_two_and_nothing_is_lost(
    whisper: WhisperRuntime, window: WindowFactory
) -> None:
    [answer] = whisper.transcribe([window("en")])

    heard = answer.text.lower()

    assert heard.count("fellow americans") == 1
    assert heard.count("your country") == 2
    assert heard.endswith(("for your country.", "for your country"))
    times = [(segment.start_ms, segment.end_ms) for segment in answer.segments]
    assert times == sorted(times)
    assert times[-1][1] <= 11_000


@pytest.fixture(scope="module")
def small_whisper(checkpoint: Path) -> WhisperRuntime:
    return WhisperRuntime.from_options(LoadOptions(folder=checkpoint, dtype="int8"))


def test_int8_does_not_depend_on_neighbours_either(
    small_whisper: WhisperRuntime, window: WindowFactory
) -> None:
    clips = ["en", "sv", "ja"]  # 11, 5 and 6 s: rows of two lengths

    together = tokens(small_whisper, [window(clip) for clip in clips])

    assert together == [tokens(small_whisper, [window(clip)])[0] for clip in clips]
    assert "ask what you can do for your country" in small_whisper._vocabulary.decode(together[0])


@pytest.mark.parametrize(
    ("clip", "number"),
    [("seven_of_clubs.flac", ("7", "Seven")), ("noextension", ("10", "Ten"))],
)
def test_three_words_are_understood_alone(
    small_whisper: WhisperRuntime, clip: str, number: tuple[str, str]
) -> None:
    samples, _ = soundfile.read(MEDIA / clip, dtype="float32")

    # Padded to 30 s they read "7F clubs" (silence) or "10 of cloves" (zeros).
    [answer] = small_whisper.transcribe([Window(key="short", samples=samples, language="en")])

    assert answer.text.rstrip(".") in [f"{written} of clubs" for written in number]


@pytest.fixture
def stops_early(
    whisper: WhisperRuntime, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, float]], None]:
    """Return what makes the model end its first text after "fellow Americans", at 2.6 s.

    The scores that are given replace those of the answers in English that follow.
    """
    decoder, first = whisper._ladder.decoder, whisper._vocabulary.timestamp_begin
    decode = decoder.decode
    english = whisper._vocabulary.languages["en"]
    stops = iter([True])

    def arrange(scores: dict[str, float]) -> None:
        def stop_early(rows):
            answers = decode(rows)
            if next(stops, False):
                [whole] = answers
                text = [token for token in whole.tokens if token < first]
                return [replace(whole, tokens=(first, *text[:6], first + 130))]
            return [
                replace(answer, **scores) if english in row.prefix else answer
                for row, answer in zip(rows, answers, strict=True)
            ]

        monkeypatch.setattr(decoder, "decode", stop_early)

    return arrange


def test_what_an_answer_left_out_at_the_end_is_heard_after_all(
    whisper: WhisperRuntime,
    window: WindowFactory,
    stops_early: Callable[[dict[str, float]], None],
) -> None:
    stops_early({})

    [answer] = whisper.transcribe([window("en")])

    assert answer.text.lower().startswith("and so my fellow americans")
    assert answer.text.lower().endswith("what you can do for your country.")
    assert answer.segments[1].start_ms >= 2600
    assert answer.segments[-1].end_ms <= 11_000


def test_a_loud_end_that_is_not_understood_is_not_left_out_in_silence(
    whisper: WhisperRuntime,
    window: WindowFactory,
    stops_early: Callable[[dict[str, float]], None],
) -> None:
    stops_early({"avg_logprob": -2.0, "no_speech_prob": 0.9})

    [answer] = whisper.transcribe([window("en")])

    assert answer.text.lower().startswith("and so my fellow americans")
    assert answer.segments[-1].end_ms == 2600
    assert answer.warnings == (PART_NOT_UNDERSTOOD,)


@pytest.mark.parametrize("voted", [True, False])
def test_what_makes_no_sense_in_the_voted_language_is_heard_in_its_own(
    whisper: WhisperRuntime,
    window: WindowFactory,
    speech: dict[str, np.ndarray],
    stops_early: Callable[[dict[str, float]], None],
    voted: bool,
) -> None:
    stops_early({"avg_logprob": -2.0, "no_speech_prob": 0.9})
    pause = np.zeros(16_000, np.float32)
    samples = np.concatenate([speech["en"], pause, speech["it"]])

    [answer] = whisper.transcribe([window("en", samples=samples, is_language_voted=voted)])

    english, *rest = answer.segments
    assert english.text.lower().startswith("and so my fellow americans")
    assert answer.language == "en"
    assert answer.warnings == (PART_NOT_UNDERSTOOD,)  # the English after 2.6 s
    assert {segment.language for segment in rest} == ({"it"} if voted else set())
    if voted:
        assert "sistema operativo Linux" in " ".join(segment.text for segment in rest)
        assert rest[0].start_ms >= 11_000
        assert rest[-1].end_ms <= len(samples) // 16


def test_nothing_is_invented_for_the_quiet_end_of_a_window(
    whisper: WhisperRuntime, window: WindowFactory, speech: dict[str, np.ndarray]
) -> None:
    noise = np.random.default_rng(0).normal(scale=1e-3, size=14 * 16_000).astype(np.float32)
    longer = window("en", samples=np.concatenate([speech["en"], noise]))

    [answer] = whisper.transcribe([longer])

    assert answer.text.lower().endswith("what you can do for your country.")
    assert answer.segments[-1].end_ms < 15_000
