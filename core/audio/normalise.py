"""Blocks of any rate and channel count to samples of one rate and one count."""

import numpy as np
import soxr
from numpy.typing import NDArray

from core.audio.mix import Limiter, Mixer
from core.audio.source import Block

Floats = NDArray[np.float32]


class Normaliser:
    """Mixes or separates channels, resamples, limits peaks; a stream that changes is no trouble."""

    def __init__(self, rate_hz: int, *, num_channels: int | None) -> None:
        """Mix to one channel, or keep `num_channels` apart if given."""
        self._rate_hz = rate_hz
        self._num_channels = num_channels
        self._limiters = [Limiter(rate_hz) for _ in range(num_channels or 1)]
        self._shape = (0, 0)
        self._mixer = Mixer(1, rate_hz)
        self._resampler: soxr.ResampleStream | None = None

    def push(self, block: Block) -> Floats:
        """Return what is finished, shape (num_channels, n)."""
        done = []
        if self._shape != (len(block.samples), block.sample_rate_hz):
            done.append(self._drain())
            self._start(len(block.samples), block.sample_rate_hz)
        samples = self._arrange(block.samples)
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples.T.copy()).T
        done.append(samples)
        return self._limit(np.concatenate(done, axis=1))

    def finish(self) -> Floats:
        """Return the rest."""
        rest = self._limit(self._drain())
        return np.concatenate((rest, np.stack([x.flush() for x in self._limiters])), axis=1)

    def _start(self, num_channels: int, sample_rate_hz: int) -> None:
        self._shape = (num_channels, sample_rate_hz)
        self._mixer = Mixer(num_channels, sample_rate_hz)
        self._resampler = None
        if sample_rate_hz != self._rate_hz:
            self._resampler = soxr.ResampleStream(
                sample_rate_hz, self._rate_hz, len(self._limiters), dtype="float32"
            )

    def _arrange(self, samples: Floats) -> Floats:
        if self._num_channels is None:
            return self._mixer.mix(samples)[None]
        missing = self._num_channels - len(samples)
        return np.pad(samples[: self._num_channels], ((0, max(0, missing)), (0, 0)))

    def _drain(self) -> Floats:
        empty = np.empty((len(self._limiters), 0), np.float32)
        if self._resampler is None:
            return empty
        tail: Floats = self._resampler.resample_chunk(empty.T.copy(), last=True).T
        return tail

    def _limit(self, samples: Floats) -> Floats:
        return np.stack([x.push(row) for x, row in zip(self._limiters, samples, strict=True)])
