"""Log-mel features as Whisper was trained on: 30 s of 10 ms frames, 80 or 128 mel bands.

The arithmetic is that of `transformers.WhisperFeatureExtractor`, one window at a time, so that a
window's features cannot depend on its neighbours.
"""

from enum import Enum, auto

import torch
from transformers.audio_utils import mel_filter_bank

from adapters.base import Samples
from core.transcript import SAMPLE_RATE_HZ

FRAME_MS = 10
WINDOW_SAMPLES = 30 * SAMPLE_RATE_HZ
_FFT = 400
_HOP = 160


class Padding(Enum):
    """What stands in the frames after a window's last sample, and how far it goes."""

    SILENCE = auto()
    """The features of digital silence up to 30 s, as `transformers` and OpenAI have it."""
    ZEROS = auto()
    """Zeros up to 30 s, somewhat louder than silence, as CTranslate2's users have it."""
    SHORT = auto()
    """Zeros for 3 s or somewhat more, and up to 10 s in all. Measured on whisper-base a shorter
    window errs no more and costs what it lasts: see benchmarks/README.md."""


_MAX_FRAMES = WINDOW_SAMPLES // _HOP
_SHORT_TAIL = 300
_SHORT_FEWEST = 1000
_SHORT_STEP = 500  # few different lengths: rows of one length need no mask


def count_frames(num_samples: int, padding: Padding) -> int:
    """Return how many frames a window has with its padding; even, as the encoder halves them."""
    if padding is not Padding.SHORT:
        return _MAX_FRAMES
    steps = -(-(num_samples // _HOP + _SHORT_TAIL) // _SHORT_STEP)
    return min(_MAX_FRAMES, max(_SHORT_FEWEST, steps * _SHORT_STEP))


class LogMel:
    """Computes features on one device.

    Attributes:
        padding: What it appends to samples.
    """

    def __init__(self, num_bins: int, device: torch.device, padding: Padding) -> None:
        self.padding = padding
        self._device = device
        self._taper = torch.hann_window(_FFT, device=device)
        filters = mel_filter_bank(
            num_frequency_bins=_FFT // 2 + 1,
            num_mel_filters=num_bins,
            min_frequency=0.0,
            max_frequency=SAMPLE_RATE_HZ / 2,
            sampling_rate=SAMPLE_RATE_HZ,
            norm="slaney",
            mel_scale="slaney",
        )
        self._filters = torch.from_numpy(filters).to(device, torch.float32).T.contiguous()

    def __call__(self, samples: Samples) -> torch.Tensor:
        """Return features of shape (num_bins, num_frames), float32, of at most 30 s of samples.

        num_frames is 3000, or fewer with `Padding.SHORT`.
        """
        padded = torch.zeros(WINDOW_SAMPLES, device=self._device)
        padded[: len(samples)] = torch.from_numpy(samples).to(self._device, torch.float32)
        spectrum = torch.stft(padded, _FFT, _HOP, window=self._taper, return_complex=True)
        power = (spectrum[:, :-1].abs() ** 2).contiguous()
        log_mel = (self._filters @ power).clamp(min=1e-10).log10()
        log_mel = torch.maximum(log_mel, log_mel.max() - 8.0)
        features = (log_mel + 4.0) / 4.0
        if self.padding is not Padding.SILENCE:
            features[:, len(samples) // _HOP :] = 0.0
        return features[:, : count_frames(len(samples), self.padding)]
