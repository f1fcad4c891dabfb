"""Windows on their way through the fallback ladder, all rows of a rung in one batch."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from adapters.base import Window
from adapters.text import letters_of, loop_ratio
from adapters.whisper.decoding import Decoded, Decoder, DecodeRow
from adapters.whisper.fallback import Scores, Trial, Verdict, find_best, judge, next_trial
from adapters.whisper.sound import fingerprint
from adapters.whisper.vocabulary import Vocabulary
from adapters.whisper.voice import Voice
from core.options import Timestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One trial of a window and what it is worth."""

    trial: Trial
    answer: Decoded
    scores: Scores
    verdict: Verdict


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A window, what the encoder made of it, and its trials so far.

    Attributes:
        language: Given or detected; None only for English-only checkpoints.
        prompt: Tokens, <|startofprev|> first; empty if there is none.
        trial: What to try next, or what was tried last.
        heard_until_ms: Where the window's last loud sound ends.
        features: What the encoder heard, if it is the rest of a longer window; else None.
        is_unheard: Whether the model has stopped before this rest. Its answer must then be good,
            and speech likely: there may be nothing but noise.
        is_language_open: Whether a part that makes no sense in `language` may be in another.
        voice: Tells the text of the first trial while it is decoded; what it told, later trials
            begin with.
    """

    window: Window
    encoded: torch.Tensor
    language: str | None
    prompt: tuple[int, ...]
    trial: Trial
    heard_until_ms: int
    features: torch.Tensor | None = None
    is_unheard: bool = False
    is_language_open: bool = False
    voice: Voice | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    def find_best(self) -> Outcome | None:
        """Return the outcome to keep, or None if none may be; see `fallback.find_best`."""
        verdicts = [outcome.verdict for outcome in self.outcomes]
        best = find_best(verdicts, [outcome.scores for outcome in self.outcomes])
        return None if best is None else self.outcomes[best]


class Ladder:
    """Decodes windows until each has an answer that stands or nothing is left to try."""

    def __init__(self, decoder: Decoder, vocabulary: Vocabulary) -> None:
        self.decoder = decoder
        self._vocabulary = vocabulary

    def climb(self, attempts: Sequence[Attempt]) -> None:
        """Fill the `outcomes` of all attempts."""
        waiting = list(attempts)
        while waiting:
            answers = self.decoder.decode([self._row(attempt) for attempt in waiting])
            waiting = [
                attempt
                for attempt, answer in zip(waiting, answers, strict=True)
                if self._needs_another(attempt, answer)
            ]

    def _needs_another(self, attempt: Attempt, answer: Decoded) -> bool:
        """Judge an answer; return whether the window is to be decoded again."""
        text = self._vocabulary.decode(answer.tokens)
        scores = Scores(
            avg_logprob=answer.avg_logprob,
            no_speech_prob=answer.no_speech_prob,
            loop_ratio=loop_ratio(text.strip()),
            is_finished=answer.is_finished,
        )
        trial = attempt.trial
        is_echo = trial.with_prompt and _is_echo(text, attempt.window.prompt or "")
        verdict = judge(scores, is_echo=is_echo)
        attempt.outcomes.append(Outcome(trial=trial, answer=answer, scores=scores, verdict=verdict))
        following = next_trial(trial, verdict, attempt.window.temperature)
        if following is None:
            return False
        attempt.trial = following
        return True

    def _row(self, attempt: Attempt) -> DecodeRow:
        prompt = attempt.prompt if attempt.trial.with_prompt else ()
        with_timestamps = attempt.window.timestamps is not Timestamps.NONE
        prefix = self._vocabulary.prefix(
            attempt.language, attempt.window.task, with_timestamps=with_timestamps
        )
        return DecodeRow(
            encoded=attempt.encoded,
            prefix=(*prompt, *prefix),
            start_index=len(prompt),
            with_timestamps=with_timestamps,
            temperature=attempt.trial.temperature,
            seed=_seed(attempt.window, attempt.trial),
            heard_until_ms=attempt.heard_until_ms,
            forced=attempt.voice.find_told_tokens() if attempt.voice and attempt.outcomes else (),
            listener=attempt.voice.hear if attempt.voice and not attempt.outcomes else None,
        )


def _seed(window: Window, trial: Trial) -> int:
    """Return a number that depends on the sound and the trial alone."""
    digest = hashlib.blake2b(fingerprint(window.samples), digest_size=8)
    digest.update(f"{trial.temperature}:{trial.with_prompt}".encode())
    return int.from_bytes(digest.digest())


def _is_echo(text: str, prompt: str) -> bool:
    letters = letters_of(text)
    return bool(letters) and letters in letters_of(prompt)
