"""Many channels to one without losing a speaker, and peaks to at most 1."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_BLOCKS_PER_S = 10
_MEMORY = float(np.exp(-1 / (0.3 * _BLOCKS_PER_S)))  # running energies fade in 0.3 s
_FLIP_BELOW, _UNFLIP_ABOVE = -0.7, -0.3
_SILENCE = 1e-12
_GAIN_STEPS = 1024
_RELEASE = 1.12  # gain comes back by at most this factor a block: 10 dB a second


class Mixer:
    """Adds channels up so that nothing cancels and nothing fades.

    * A channel that runs against the sum of those before it (correlation below -0.7 over some
      tenths of a second, until it is above -0.3 again) is turned over first: a cable with swapped
      poles would otherwise erase the voice.
    * The sum is scaled to the energy of the loudest channel, by a factor within [1/N, 1]: two
      equal channels give exactly their average, while a dead or waiting channel halves nobody.

    Weights move linearly over a block of 0.1 s, so a change does not click.
    """

    def __init__(self, num_channels: int, sample_rate_hz: int) -> None:
        self._num_channels = num_channels
        self._block = max(1, sample_rate_hz // _BLOCKS_PER_S)
        self._signs = np.ones(num_channels)
        self._energies = np.zeros(num_channels)
        self._partial_energies = np.zeros(num_channels)
        self._products = np.zeros(num_channels)
        self._gain = 1.0
        self._weights: NDArray[np.float64] | None = None

    def mix(self, samples: Floats) -> Floats:
        """Return `samples`, shape (num_channels, n), as one channel of shape (n,)."""
        if self._num_channels == 1:
            return samples.reshape(-1)
        edges = [*range(0, samples.shape[1], self._block), samples.shape[1]]
        return np.concatenate([self._mix_block(samples[:, a:b]) for a, b in pairwise(edges)])

    def _mix_block(self, block: Floats) -> Floats:
        exact = block.astype(np.float64)
        target = self._measure(exact)
        before = target if self._weights is None else self._weights
        self._weights = target
        if np.array_equal(before, target):
            mixed = target @ exact
        else:
            ramp = np.linspace(0, 1, exact.shape[1], endpoint=False)
            mixed = before @ exact * (1 - ramp) + target @ exact * ramp
        result: Floats = mixed.astype(np.float32)
        return result

    def _measure(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        """Update the running energies and return the weight of each channel."""
        self._energies = self._energies * _MEMORY + (block * block).sum(axis=1)
        partial = block[0]
        for channel in range(1, self._num_channels):
            other = block[channel]
            self._partial_energies[channel] *= _MEMORY
            self._partial_energies[channel] += partial @ partial
            self._products[channel] = self._products[channel] * _MEMORY + partial @ other
            scale = np.sqrt(self._partial_energies[channel] * self._energies[channel])
            correlation = self._products[channel] / scale if scale > _SILENCE else 0.0
            if correlation < _FLIP_BELOW:
                self._signs[channel] = -1
            elif correlation > _UNFLIP_ABOVE and scale > _SILENCE:
                self._signs[channel] = 1
            partial = partial + self._signs[channel] * other
        self._partial_energies[0] = self._partial_energies[0] * _MEMORY + partial @ partial
        if self._partial_energies[0] > _SILENCE:
            gain = np.sqrt(self._energies.max() / self._partial_energies[0])
            gain = np.clip(gain, 1 / self._num_channels, 1.0)
            self._gain = round(float(gain) * _GAIN_STEPS) / _GAIN_STEPS
        return self._signs * self._gain


class Limiter:
    """Keeps peaks within [-1, 1] by turning the level down around them, and only there.

    Works one block of 0.1 s behind its input, so that the level is down before a peak arrives.
    Samples of a recording without such peaks pass unchanged.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self._block = sample_rate_hz // _BLOCKS_PER_S
        self._rest = np.empty(0, np.float32)
        self._held: Floats | None = None
        self._held_gain = 1.0
        self._left_gain = 1.0

    def push(self, samples: Floats) -> Floats:
        """Take more samples, shape (n,); return those that are finished."""
        pending = np.concatenate((self._rest, samples))
        whole = len(pending) - len(pending) % self._block
        self._rest = pending[whole:]
        return self._join(
            [self._step(b) for b in np.split(pending[:whole], whole // self._block)]
            if whole
            else []
        )

    def flush(self) -> Floats:
        """Return what was held back."""
        blocks = [self._step(self._rest), self._step(None)]
        self._rest = np.empty(0, np.float32)
        return self._join(blocks)

    def _step(self, block: Floats | None) -> Floats:
        gain = 1.0
        if block is not None and len(block):
            peak = float(np.abs(block).max())
            gain = min(1.0 / peak if peak > 1.0 else 1.0, self._held_gain * _RELEASE)
        right_gain = min(self._held_gain, gain)
        done = np.empty(0, np.float32)
        if self._held is not None:
            done = self._held
            if min(self._left_gain, right_gain) < 1.0:
                slope = np.linspace(self._left_gain, right_gain, len(done), dtype=np.float32)
                done = np.clip(done * slope, -1.0, 1.0)
        self._held, self._held_gain, self._left_gain = block, gain, right_gain
        return done

    @staticmethod
    def _join(blocks: list[Floats]) -> Floats:
        return np.concatenate(blocks) if blocks else np.empty(0, np.float32)
