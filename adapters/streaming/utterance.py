"""One utterance of a stream while it grows: what of its encoding and its keys can be kept.

Exact: what a step computes equals a computation over the whole utterance, because
* the encoder convolves pieces of 1 s by themselves and attends inside windows of 8 s: what it made
  of a full one does not change. It is full once the samples its last frame reaches for have come,
  12.5 ms after its end;
* features are cut off 8 decades below the loudest bin of the utterance. When a louder bin comes,
  exactly those in which the cut-off changes a bin are encoded again;
* the decoder is causal: keys and values of [prompt head, full windows] do not change either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from adapters.base import Samples
from adapters.qwen3_asr.encoding import EncoderGeometry
from adapters.qwen3_asr.features import DYNAMIC_RANGE, LogMel, pad_samples
from adapters.qwen3_asr.keys import KeptKeys
from adapters.qwen3_asr.prompts import PromptLayout


@dataclass(slots=True)
class Computed:
    """What was computed of some frames, and under which ceiling.

    Attributes:
        value: A convolved piece, or a full window's embeddings.
        ceiling: The utterance's loudest bin at the time, or another that gives the same.
    """

    value: Tensor
    ceiling: float


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """What a step must encode.

    Attributes:
        windows: Number of each full window that is new or stale.
        pieces: Numbers of the pieces of each of them, and last those of the open window, if any.
        features: Of the pieces that must be convolved, by number.
        ceiling: The loudest bin so far.
        num_frames: Of all windows together.
    """

    windows: tuple[int, ...]
    pieces: list[range]
    features: dict[int, Tensor]
    ceiling: float
    num_frames: int


@dataclass(slots=True, kw_only=True)
class Utterance:
    """Audio, features, embeddings and keys of one utterance.

    Attributes:
        start_sample: Its position in the stream.
        num_samples: Heard so far.
        kept: Keys of the prompt's head and of the full windows.
        num_reencoded: Windows that a rising level made stale.
    """

    mel: LogMel
    geometry: EncoderGeometry
    prompt: PromptLayout
    start_sample: int
    num_samples: int = 0
    kept: KeptKeys = field(default_factory=KeptKeys)
    num_reencoded: int = 0
    _raw: Tensor | None = None  # frames that no later sample changes, and room for more
    _num_done: int = 0  # frames of those
    _provisional: Tensor | None = None  # frames after those, as if the audio ended here
    _loudest: float = float("-inf")  # bin of `_raw`
    _wave: Samples = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    _wave_start: int = 0
    _is_measured: bool = True  # whether the frames are those of all samples
    _windows: list[Computed] = field(default_factory=list)
    _pieces: dict[int, Computed] = field(default_factory=dict)  # whole ones of the open window

    def append(self, samples: Samples) -> None:
        """Take new audio; `measure` must follow."""
        self._wave = np.concatenate([self._wave, samples])
        self.num_samples += len(samples)
        self._is_measured = False

    def plan(self) -> EncodePlan:
        """Return what must be encoded to answer for the audio so far."""
        if self._raw is None or self._provisional is None:
            raise ValueError("an utterance without audio has nothing to encode")
        size, step = self.geometry.window_frames, self.geometry.piece_frames
        ceiling = max(self._loudest, _max(self._provisional))
        num_frames = self._num_done + self._provisional.shape[1]
        num_full = self._num_done // size
        windows = tuple(
            number
            for number in range(num_full)
            if number >= len(self._windows)
            or self._is_stale(self._windows[number], number * size, (number + 1) * size, ceiling)
        )
        bounds = [(number * size, (number + 1) * size) for number in windows]
        if num_frames > num_full * size:
            bounds.append((num_full * size, num_frames))
        pieces = [range(start // step, -(-end // step)) for start, end in bounds]
        fresh = [number for own in pieces for number in own if self._must_convolve(number, ceiling)]
        return EncodePlan(
            windows=windows,
            pieces=pieces,
            features=self._features_of(fresh, ceiling),
            ceiling=ceiling,
            num_frames=sum(end - start for start, end in bounds),
        )

    def assemble(self, plan: EncodePlan, convolved: Sequence[Tensor]) -> list[Tensor]:
        """Take a plan's convolved pieces; return the windows that are to attend."""
        fresh = dict(zip(plan.features, convolved, strict=True))
        known = {n: piece.value for n, piece in self._pieces.items()} | fresh
        windows = [torch.cat([known[number] for number in own]) for own in plan.pieces]
        step = self.geometry.piece_frames
        for number, value in fresh.items():
            if (number + 1) * step <= self._num_done:
                self._pieces[number] = Computed(value, plan.ceiling)
        return windows

    def settle(self, plan: EncodePlan, embeddings: Sequence[Tensor]) -> "Suffix":
        """Take a plan's embeddings; return what the decoder must read after the kept keys."""
        size = self.geometry.window_frames
        for number, embedded in zip(plan.windows, embeddings, strict=False):
            window = Computed(embedded, plan.ceiling)
            if number < len(self._windows):
                self._windows[number] = window
                self.num_reencoded += 1
            else:
                self._windows.append(window)
        first_open = len(self._windows) * size // self.geometry.piece_frames
        self._pieces = {n: piece for n, piece in self._pieces.items() if n >= first_open}
        num_fresh = 0
        if self.kept.length:
            head, window_tokens = len(self.prompt.head), self.geometry.window_tokens
            num_fresh = min([(self.kept.length - head) // window_tokens, *plan.windows])
            self.kept = self.kept.crop(head + num_fresh * window_tokens)
        return Suffix(
            needs_head=not self.kept.length,
            stable=[window.value for window in self._windows[num_fresh:]],
            open=list(embeddings[len(plan.windows) :]),
        )

    def keep(self, suffix: "Suffix", keys: KeptKeys) -> None:
        """Keep the keys of what no later audio changes, from those of a whole prompt."""
        if suffix.needs_head or suffix.stable:
            num_stable = len(self._windows) * self.geometry.window_tokens
            self.kept = keys.crop(len(self.prompt.head) + num_stable).clone()

    def unmeasured(self) -> Samples | None:
        """Return the audio whose frames are wanted, or None if there is none; see `measure`."""
        if self._is_measured:
            return None
        # Two frames earlier, so that the reflected edge of this piece stays out of new frames.
        start = max(0, self._num_done - 2) * self.mel.hop
        self._wave = self._wave[start - self._wave_start :]
        self._wave_start = start
        return pad_samples(self._wave, min_samples=self.mel.min_samples - start)

    def take_frames(self, frames: Tensor) -> None:
        """Take the frames of what `unmeasured` returned."""
        num_done = self._num_done
        frames = frames[:, num_done - self._wave_start // self.mel.hop :]
        total = max(self.num_samples, self.mel.min_samples) // self.mel.hop
        complete = min(total, max(0, (self.num_samples - self.mel.reach) // self.mel.hop + 1))
        complete = max(complete, num_done)
        new = frames[:, : complete - num_done]
        self._keep_frames(new)
        self._loudest = max(self._loudest, _max(new))
        self._provisional = frames[:, complete - num_done :]
        self._is_measured = True

    def _keep_frames(self, new: Tensor) -> None:
        start, self._num_done = self._num_done, self._num_done + new.shape[1]
        if self._raw is None or self._raw.shape[1] < self._num_done:
            grown = new.new_empty(new.shape[0], 2 * self._num_done)
            if self._raw is not None:
                grown[:, :start] = self._raw[:, :start]
            self._raw = grown
        self._raw[:, start : self._num_done] = new

    def _features_of(self, pieces: Sequence[int], ceiling: float) -> dict[int, Tensor]:
        """Return the features of pieces, those side by side computed together."""
        step = self.geometry.piece_frames
        features: dict[int, Tensor] = {}
        for _, run in groupby(enumerate(pieces), key=lambda each: each[1] - each[0]):
            numbers = [number for _, number in run]
            together = self._features(numbers[0] * step, (numbers[-1] + 1) * step, ceiling)
            features |= zip(numbers, torch.split(together, step, dim=1), strict=True)
        return features

    def _features(self, start: int, end: int, ceiling: float) -> Tensor:
        """Return the features of the frames [start, end), provisional ones included."""
        raw = self._frames(start, end)
        if raw.shape[1] < end - start and self._provisional is not None:
            first = max(0, start - self._num_done)
            rest = self._provisional[:, first : max(0, end - self._num_done)]
            raw = torch.cat([raw, rest], dim=1)
        return self.mel.normalise(raw, ceiling)

    def _must_convolve(self, piece: int, ceiling: float) -> bool:
        step = self.geometry.piece_frames
        known = self._pieces.get(piece)
        return known is None or self._is_stale(known, piece * step, (piece + 1) * step, ceiling)

    def _is_stale(self, known: Computed, start: int, end: int, ceiling: float) -> bool:
        """Whether another ceiling changes any feature of the frames [start, end)."""
        if ceiling != known.ceiling:
            highest = max(ceiling, known.ceiling)
            if float(self._frames(start, end).min()) < highest - DYNAMIC_RANGE:
                return True
            known.ceiling = ceiling  # the same under both
        return False

    def _frames(self, start: int, end: int) -> Tensor:
        """Return those of the frames [start, end) that no later sample changes."""
        if self._raw is None:
            raise ValueError("an utterance without audio has no frames")
        return self._raw[:, start : min(end, self._num_done)]


def _max(frames: Tensor) -> float:
    return float(frames.max()) if frames.numel() else float("-inf")


def measure(mel: LogMel, utterances: Sequence[Utterance]) -> None:
    """Compute the frames that new audio completes, those of many utterances together."""
    waves = [(utterance, utterance.unmeasured()) for utterance in utterances]
    due = [(utterance, wave) for utterance, wave in waves if wave is not None]
    frames = mel.raw_many([wave for _, wave in due])
    for (utterance, _), own in zip(due, frames, strict=True):
        utterance.take_frames(own)


@dataclass(frozen=True, slots=True)
class Suffix:
    """Embeddings that follow the kept keys.

    Attributes:
        needs_head: Whether the prompt's head comes first: nothing is kept yet.
        stable: Full windows whose keys are to be kept.
        open: The window that still grows, if any.
    """

    needs_head: bool
    stable: list[Tensor]
    open: list[Tensor]
