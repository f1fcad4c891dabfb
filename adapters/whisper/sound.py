"""What can be said of a window's samples without a model. Pure."""

import hashlib

import numpy as np

from adapters.base import Samples
from core.transcript import SAMPLE_RATE_HZ

_INAUDIBLE = 1e-4
"""Three steps of 16-bit audio, -80 dBFS: Whisper answers such windows with learnt phrases."""

_LOUD_BLOCK = SAMPLE_RATE_HZ // 2
_LOUD_PART = 0.1  # 20 dB below the loudest blocks

_SHORTEST_PART = 2 * SAMPLE_RATE_HZ
_FRAME = SAMPLE_RATE_HZ // 50
_PAUSE_FRAMES = 25  # half a second


def is_audible(samples: Samples) -> bool:
    """Whether there is anything but digital silence."""
    return bool(samples.size) and float(np.abs(samples).max()) > _INAUDIBLE


def fingerprint(samples: Samples) -> bytes:
    """Return a digest of the sound: equal for equal samples, whatever window they belong to."""
    return hashlib.blake2b(np.ascontiguousarray(samples).tobytes(), digest_size=16).digest()


def split_samples(samples: Samples) -> tuple[Samples, Samples] | None:
    """Cut at the quietest 20 ms of the middle third, or return None if the parts are too short."""
    if len(samples) < 2 * _SHORTEST_PART:
        return None
    first, last = len(samples) // 3, 2 * len(samples) // 3
    num_frames = (last - first) // _FRAME
    frames = samples[first : first + num_frames * _FRAME].reshape(num_frames, _FRAME)
    quietest = int(np.argmin(np.square(frames, dtype=np.float64).sum(axis=1)))
    cut = first + quietest * _FRAME + _FRAME // 2
    return samples[:cut], samples[cut:]


def split_at_pauses(samples: Samples) -> list[tuple[int, Samples]]:
    """Return what is heard between pauses of half a second, each with its first sample's index.

    What is shorter than 2 s stays with what precedes it; at the start, with what follows.
    """
    num_frames = len(samples) // _FRAME
    frames = samples[: num_frames * _FRAME].reshape(num_frames, _FRAME)
    levels = np.sqrt(np.square(frames, dtype=np.float64).mean(axis=1))
    loud = np.flatnonzero(levels >= _LOUD_PART * np.quantile(levels, 0.9))
    parts: list[tuple[int, int]] = []
    for heard in np.split(loud, np.flatnonzero(np.diff(loud) > _PAUSE_FRAMES) + 1):
        first, end = int(heard[0]) * _FRAME, int(heard[-1] + 1) * _FRAME
        if parts and (end - first < _SHORTEST_PART or parts[-1][1] - parts[-1][0] < _SHORTEST_PART):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((first, end))
    edge = _PAUSE_FRAMES // 2 * _FRAME
    cuts = [(max(0, first - edge), end + edge) for first, end in parts]
    return [(first, samples[first:end]) for first, end in cuts]


def loud_until_ms(samples: Samples) -> int:
    """Return where the last half second ends that is about as loud as the loud ones.

    What comes after is a pause or background, so an answer that ends there has left nothing out.
    """
    starts = range(0, len(samples), _LOUD_BLOCK)
    blocks = [samples[start : start + _LOUD_BLOCK] for start in starts]
    levels = np.array([float(np.sqrt(np.mean(np.square(b, dtype=np.float64)))) for b in blocks])
    loud = np.flatnonzero(levels >= _LOUD_PART * np.quantile(levels, 0.9))
    last = min(len(samples), (int(loud[-1]) + 1) * _LOUD_BLOCK)
    return last * 1000 // SAMPLE_RATE_HZ
