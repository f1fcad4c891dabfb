"""One utterance of a stream while it grows: what of its encoding and its keys can be kept.

Exact: what a step computes equals a computation over the whole utterance, because
* the encoder attends inside 8 s windows: a full window's embeddings do not change. A window is
  full once the samples its last frame reaches for have come, 12.5 ms after its end;
* features are cut off 8 decades below the loudest bin of the utterance. When a louder bin comes,
  exactly the windows in which the cut-off changes a bin are encoded again;
* the decoder is causal: keys and values of [prompt head, full windows] do not change either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from adapters.base import Samples
from adapters.qwen3_asr.encoding import EncoderGeometry
from adapters.qwen3_asr.features import DYNAMIC_RANGE, LogMel, pad_samples
from adapters.qwen3_asr.keys import KeptKeys
from adapters.qwen3_asr.prompts import PromptLayout


@dataclass(frozen=True, slots=True)
class FullWindow:
    """A full attention window.

    Attributes:
        lowest: Its smallest raw log-mel value.
        ceiling: The utterance's loudest bin when it was encoded.
    """

    embeddings: Tensor
    lowest: float
    ceiling: float

    def is_stale(self, ceiling: float) -> bool:
        """Whether another ceiling changes any of its features."""
        return ceiling != self.ceiling and self.lowest < max(ceiling, self.ceiling) - DYNAMIC_RANGE


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """What a step must encode.

    Attributes:
        windows: Number of each full window that is new or stale.
        features: Theirs, and last those of the open window if there is one.
        has_open: Whether there is one.
        ceiling: The loudest bin so far.
    """

    windows: tuple[int, ...]
    features: list[Tensor]
    has_open: bool
    ceiling: float


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
    _raw: Tensor | None = None  # frames that no later sample changes
    _provisional: Tensor | None = None  # frames after those, as if the audio ended here
    _wave: Samples = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    _wave_start: int = 0
    _windows: list[FullWindow] = field(default_factory=list)

    def append(self, samples: Samples) -> None:
        """Take new audio and compute the frames that it completes."""
        self._wave = np.concatenate([self._wave, samples])
        self.num_samples += len(samples)
        total = max(self.num_samples, self.mel.min_samples) // self.mel.hop
        num_done = 0 if self._raw is None else self._raw.shape[1]
        # Two frames earlier, so that the reflected edge of this piece stays out of new frames.
        start = max(0, num_done - 2) * self.mel.hop
        self._wave = self._wave[start - self._wave_start :]
        self._wave_start = start
        shortest = self.mel.min_samples - start
        frames = self.mel.raw(pad_samples(self._wave, min_samples=shortest))
        frames = frames[:, num_done - start // self.mel.hop :]
        complete = min(total, max(0, (self.num_samples - self.mel.reach) // self.mel.hop + 1))
        complete = max(complete, num_done)
        new = frames[:, : complete - num_done]
        self._raw = new if self._raw is None else torch.cat([self._raw, new], dim=1)
        self._provisional = frames[:, complete - num_done :]

    def plan(self) -> EncodePlan:
        """Return what must be encoded to answer for the audio so far."""
        if self._raw is None or self._provisional is None:
            raise ValueError("an utterance without audio has nothing to encode")
        raw = torch.cat([self._raw, self._provisional], dim=1)
        size = self.geometry.window_frames
        ceiling = float(raw.max())
        num_full = self._raw.shape[1] // size
        windows = tuple(
            number
            for number in range(num_full)
            if number >= len(self._windows) or self._windows[number].is_stale(ceiling)
        )
        pieces = [raw[:, number * size : (number + 1) * size] for number in windows]
        has_open = raw.shape[1] > num_full * size
        if has_open:
            pieces.append(raw[:, num_full * size :])
        return EncodePlan(
            windows=windows,
            features=[self.mel.normalise(piece, ceiling) for piece in pieces],
            has_open=has_open,
            ceiling=ceiling,
        )

    def settle(self, plan: EncodePlan, embeddings: Sequence[Tensor]) -> "Suffix":
        """Take a plan's embeddings; return what the decoder must read after the kept keys."""
        size = self.geometry.window_frames
        for number, embedded in zip(plan.windows, embeddings, strict=False):
            raw = self._full_frames(number * size, (number + 1) * size)
            window = FullWindow(embedded, float(raw.min()), plan.ceiling)
            if number < len(self._windows):
                self._windows[number] = window
                self.num_reencoded += 1
            else:
                self._windows.append(window)
        num_fresh = 0
        if self.kept.length:
            head, window_tokens = len(self.prompt.head), self.geometry.window_tokens
            num_fresh = min([(self.kept.length - head) // window_tokens, *plan.windows])
            self.kept = self.kept.crop(head + num_fresh * window_tokens)
        return Suffix(
            needs_head=not self.kept.length,
            stable=[window.embeddings for window in self._windows[num_fresh:]],
            open=list(embeddings[len(plan.windows) :]),
        )

    def keep(self, suffix: "Suffix", keys: KeptKeys) -> None:
        """Keep the keys of what no later audio changes, from those of a whole prompt."""
        if suffix.needs_head or suffix.stable:
            num_stable = len(self._windows) * self.geometry.window_tokens
            self.kept = keys.crop(len(self.prompt.head) + num_stable).clone()

    def _full_frames(self, start: int, end: int) -> Tensor:
        if self._raw is None:
            raise ValueError("an utterance without audio has no frames")
        return self._raw[:, start:end]


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
