"""When an answer is not good enough, and what to try next. Pure.

Thresholds and ladder are openai-whisper's (`transcribe.py`): a text that compresses too well is a
loop, an improbable one a guess, and an improbable one where the model hears no speech is silence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

LADDER = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MAX_COMPRESSION_RATIO = 2.4
MIN_AVG_LOGPROB = -1.0
MAX_NO_SPEECH_PROB = 0.6


class Verdict(Enum):
    """What an answer is worth."""

    GOOD = auto()
    SILENCE = auto()
    UNLIKELY = auto()  # usable if nothing better comes
    LOOP = auto()  # may be true repetition: usable if it is likely, else as a last resort
    ECHO = auto()  # says the prompt again: try without it
    UNFINISHED = auto()  # a loop that did not end: never usable
    OVERFULL = auto()  # more text than the context holds: never usable, nothing hotter helps


_BLAMED_ON_PROMPTS = (Verdict.ECHO, Verdict.LOOP, Verdict.UNFINISHED, Verdict.OVERFULL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How to decode a window."""

    temperature: float
    with_prompt: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What judges an answer; see `core.transcript.Segment` for the units.

    Attributes:
        loop_ratio: The compression ratio, made comparable between scripts; see `adapters.text`.
    """

    avg_logprob: float
    no_speech_prob: float
    loop_ratio: float
    is_finished: bool


def judge(scores: Scores, *, is_echo: bool) -> Verdict:
    """Return what an answer is worth.

    Args:
        is_echo: Whether the text stands in the prompt that was given.
    """
    if not scores.is_finished:
        is_loop = scores.loop_ratio > MAX_COMPRESSION_RATIO
        return Verdict.UNFINISHED if is_loop else Verdict.OVERFULL
    if scores.no_speech_prob > MAX_NO_SPEECH_PROB and scores.avg_logprob < MIN_AVG_LOGPROB:
        return Verdict.SILENCE
    if is_echo:
        return Verdict.ECHO
    if scores.loop_ratio > MAX_COMPRESSION_RATIO:
        return Verdict.LOOP
    if scores.avg_logprob < MIN_AVG_LOGPROB:
        return Verdict.UNLIKELY
    return Verdict.GOOD


def first_trial(temperature: float | None, *, has_prompt: bool) -> Trial:
    """Return how a window is decoded first; `temperature` is the caller's, None for the ladder."""
    return Trial(temperature=temperature or LADDER[0], with_prompt=has_prompt)


def next_trial(trial: Trial, verdict: Verdict, temperature: float | None) -> Trial | None:
    """Return what to try after `trial`, or None if its answer stands or the ladder ends.

    A prompt that is repeated, or leads into a loop or to the end of the context it takes room in,
    is left out first. A temperature that the caller chose is kept unless it gives no answer at all.
    """
    if verdict in (Verdict.GOOD, Verdict.SILENCE):
        return None
    if trial.with_prompt and verdict in _BLAMED_ON_PROMPTS:
        return Trial(temperature=trial.temperature, with_prompt=False)
    if verdict is Verdict.OVERFULL:
        return None
    if temperature is not None and verdict is not Verdict.UNFINISHED:
        return None
    hotter = next((step for step in LADDER if step > trial.temperature), None)
    return None if hotter is None else Trial(temperature=hotter, with_prompt=trial.with_prompt)


def find_best(verdicts: Sequence[Verdict], scores: Sequence[Scores]) -> int | None:
    """Return which of a window's answers to keep, or None if none may be.

    The last one if it is good. Else the likeliest text that ended by itself: what looks like a loop
    at every temperature and is likely all the same is a speaker who repeats himself, and better
    than a hot guess. Below the threshold of likelihood loops come last.
    """
    if verdicts[-1] in (Verdict.GOOD, Verdict.SILENCE):
        return len(verdicts) - 1
    usable = [
        n for n, verdict in enumerate(verdicts) if verdict in (Verdict.UNLIKELY, Verdict.LOOP)
    ]

    def worth(number: int) -> tuple[bool, bool, float]:
        avg_logprob = scores[number].avg_logprob
        return avg_logprob >= MIN_AVG_LOGPROB, verdicts[number] is Verdict.UNLIKELY, avg_logprob

    return max(usable, key=worth, default=None)
