"""When an answer is kept, and what is tried when it is not."""

from dataclasses import replace

import pytest

from adapters.whisper.fallback import (
    LADDER,
    Scores,
    Trial,
    Verdict,
    find_best,
    first_trial,
    judge,
    next_trial,
)

FINE = Scores(avg_logprob=-0.3, no_speech_prob=0.1, loop_ratio=1.5, is_finished=True)


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        (FINE, Verdict.GOOD),
        (replace(FINE, loop_ratio=2.5), Verdict.LOOP),
        (replace(FINE, avg_logprob=-1.1), Verdict.UNLIKELY),
        (replace(FINE, avg_logprob=-1.1, no_speech_prob=0.7), Verdict.SILENCE),
        (replace(FINE, no_speech_prob=0.7), Verdict.GOOD),
        (replace(FINE, is_finished=False), Verdict.OVERFULL),
        (replace(FINE, is_finished=False, loop_ratio=9.0), Verdict.UNFINISHED),
    ],
)
def test_scores_decide_what_an_answer_is_worth(scores: Scores, verdict: Verdict) -> None:
    assert judge(scores, is_echo=False) is verdict


def test_an_echo_of_the_prompt_is_not_trusted_however_likely() -> None:
    assert judge(replace(FINE, avg_logprob=-0.01), is_echo=True) is Verdict.ECHO


def climb(verdict: Verdict, temperature: float | None = None) -> list[float]:
    trial: Trial | None = first_trial(temperature, has_prompt=False)
    seen = []
    while trial is not None:
        seen.append(trial.temperature)
        trial = next_trial(trial, verdict, temperature)
    return seen


def test_a_guess_or_a_loop_climbs_the_whole_ladder() -> None:
    assert climb(Verdict.UNLIKELY) == list(LADDER)
    assert climb(Verdict.LOOP) == list(LADDER)


def test_a_good_answer_ends_it() -> None:
    assert climb(Verdict.GOOD) == [0.0]
    assert climb(Verdict.SILENCE) == [0.0]


def test_a_chosen_temperature_is_kept_unless_it_gives_no_answer_at_all() -> None:
    assert climb(Verdict.LOOP, 0.4) == [0.4]
    assert climb(Verdict.UNFINISHED, 0.4) == [0.4, 0.6, 0.8, 1.0]


def test_more_text_than_fits_is_not_decoded_hotter() -> None:
    assert climb(Verdict.OVERFULL) == [0.0]


@pytest.mark.parametrize(
    "verdict", [Verdict.ECHO, Verdict.LOOP, Verdict.UNFINISHED, Verdict.OVERFULL]
)
def test_the_prompt_is_dropped_before_the_temperature_rises(verdict: Verdict) -> None:
    following = next_trial(Trial(temperature=0.0, with_prompt=True), verdict, None)

    assert following == Trial(temperature=0.0, with_prompt=False)


@pytest.mark.parametrize(("loop", "kept"), [(-0.1, 0), (-1.1, 2)])
def test_true_repetition_is_kept_before_a_guess_and_a_guess_before_a_loop(
    loop: float, kept: int
) -> None:
    verdicts = [Verdict.LOOP, Verdict.UNLIKELY, Verdict.UNLIKELY, Verdict.UNFINISHED]
    scores = [replace(FINE, avg_logprob=value) for value in (loop, -1.5, -1.2, -0.2)]

    assert find_best(verdicts, scores) == kept


def test_what_never_ended_is_never_kept() -> None:
    assert find_best([Verdict.UNFINISHED, Verdict.OVERFULL], [FINE, FINE]) is None
