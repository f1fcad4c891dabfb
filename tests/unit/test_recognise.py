"""A batch through the model, whatever goes wrong in it."""

from collections.abc import Sequence

import numpy as np
import pytest

from adapters.base import AdapterSpec, Window
from core.errors import AdapterFailure, DeviceOutOfMemory, TokenLimitReached
from core.transcript import Hypothesis, Segment
from workers.recognise import MAX_CUTS, quiet_spot, transcribe_each
from workers.room import Room
from workers.vote import elect_language


class Scripted:
    """Answers with the window's key; raises what `fault` returns."""

    spec = AdapterSpec(name="scripted", window_ms=30_000)
    languages = frozenset({"en", "de", "fr"})

    def __init__(self, fault=lambda _windows: None, detect=None) -> None:
        self.fault = fault
        self.detect = detect
        self.sizes: list[int] = []

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        self.sizes.append(len(windows))
        if (error := self.fault(windows)) is not None:
            raise error
        return [
            Hypothesis(segments=(Segment(text=w.key, start_ms=0, end_ms=w.duration_ms),))
            for w in windows
        ]

    def detect_language(self, windows: Sequence[Window]) -> list[dict[str, float]]:
        return [self.detect(w) for w in windows]

    def close(self) -> None:
        pass


def windows(num: int, seconds: float = 1.0) -> list[Window]:
    return [
        Window(key=str(i), samples=np.zeros(int(seconds * 16_000), np.float32)) for i in range(num)
    ]


def texts(answers) -> list[str]:
    return [a.text if isinstance(a, Hypothesis) else type(a).__name__ for a in answers]


def test_a_healthy_batch_is_one_call() -> None:
    adapter = Scripted()
    assert texts(transcribe_each(adapter, windows(4), room=Room())) == ["0", "1", "2", "3"]
    assert adapter.sizes == [4]


def test_a_poisonous_window_is_alone_with_its_failure() -> None:
    adapter = Scripted(lambda ws: RuntimeError("bug") if any(w.key == "2" for w in ws) else None)
    assert texts(transcribe_each(adapter, windows(4), room=Room())) == [
        "0",
        "1",
        "RuntimeError",
        "3",
    ]


def test_memory_that_runs_out_halves_the_batch() -> None:
    adapter = Scripted(lambda ws: DeviceOutOfMemory("full") if len(ws) > 2 else None)
    assert texts(transcribe_each(adapter, windows(7), room=Room())) == [str(i) for i in range(7)]
    assert adapter.sizes == [7, 4, 2, 2, 2, 1]


def test_a_size_that_did_not_fit_is_not_tried_again_for_long() -> None:
    most = 2
    adapter = Scripted(lambda ws: DeviceOutOfMemory("full") if len(ws) > most else None)
    room = Room()
    for _ in range(20):
        assert len(transcribe_each(adapter, windows(8), room=room)) == 8
    assert [size for size in adapter.sizes if size > 2] == [8, 4, 4]
    most = 8
    for _ in range(60):
        transcribe_each(adapter, windows(8), room=room)
    assert adapter.sizes[-1] == 8


def test_memory_too_small_for_one_window_is_its_failure() -> None:
    adapter = Scripted(lambda _ws: DeviceOutOfMemory("full"))
    assert texts(transcribe_each(adapter, windows(2), room=Room())) == ["DeviceOutOfMemory"] * 2


def test_a_wrong_number_of_answers_is_no_answer() -> None:
    adapter = Scripted()
    adapter.transcribe = lambda ws: [Hypothesis()] * (len(ws) + 1)  # type: ignore[method-assign]
    answers = transcribe_each(adapter, windows(2), room=Room())
    assert all(isinstance(answer, AdapterFailure) for answer in answers)


def test_parts_of_a_window_cut_again_are_joined_with_their_offsets() -> None:
    adapter = Scripted(
        lambda ws: TokenLimitReached("cap") if len(ws[0].samples) > 100_000 else None
    )
    (answer,) = transcribe_each(adapter, windows(1, seconds=12.0), room=Room())
    assert isinstance(answer, Hypothesis)
    assert [s.text for s in answer.segments] == ["0/0", "0/1"]
    assert answer.segments[0].end_ms == answer.segments[1].start_ms
    assert answer.segments[1].end_ms == 12_000


def test_cutting_again_ends() -> None:
    adapter = Scripted(lambda _ws: TokenLimitReached("cap"))
    (answer,) = transcribe_each(adapter, windows(1, seconds=30.0), room=Room())
    assert isinstance(answer, TokenLimitReached)
    assert len(adapter.sizes) == MAX_CUTS + 1


@pytest.mark.parametrize("at", [5_000, 7_000, 10_000])
def test_the_cut_is_in_the_quiet_and_in_the_middle_half(at: int) -> None:
    samples = np.random.default_rng(0).uniform(-1, 1, 16_000).astype(np.float32)
    samples[at : at + 1_600] = 0
    samples[:1_600] = 0  # quiet too, but at the edge
    assert at <= quiet_spot(samples) <= at + 1_600


@pytest.mark.parametrize("num_samples", [2, 3, 100, 1_000])
def test_even_a_tiny_window_has_two_parts(num_samples: int) -> None:
    assert 0 < quiet_spot(np.zeros(num_samples, np.float32)) < num_samples


def test_longer_windows_weigh_more_in_the_vote() -> None:
    adapter = Scripted(detect=lambda w: {"de": 1.0} if w.duration_ms > 1_000 else {"en": 1.0})
    short, long = windows(2, 1.0), windows(1, 3.0)
    assert elect_language(adapter, {"job": [*short, *long]}, batch_windows=2) == {"job": "de"}


def test_jobs_in_one_batch_vote_apart() -> None:
    adapter = Scripted(detect=lambda w: {("en", "de")[int(w.key)]: 1.0})
    first, second = windows(2)
    elected = elect_language(adapter, {"a": [first], "b": [second]}, batch_windows=8)
    assert elected == {"a": "en", "b": "de"}


@pytest.mark.parametrize(
    ("spoken", "num_heard", "elected"),
    [
        ("aaaaa", 3, "a"),  # the other two cannot change it
        ("abaaa", 3, "a"),
        ("ababa", 3, "a"),
        ("abbba", 5, "b"),  # two to one, and the other two decide
        ("aabba", 5, "a"),
    ],
)
def test_votes_that_cannot_change_the_outcome_are_not_heard(
    spoken: str, num_heard: int, elected: str
) -> None:
    heard = []

    def detect(window: Window) -> dict[str, float]:
        heard.append(window.key)
        return {spoken[int(window.key)]: 1.0}

    voters = windows(5)

    assert elect_language(Scripted(detect=detect), {"job": voters}, batch_windows=8) == {
        "job": elected
    }
    assert len(heard) == num_heard
