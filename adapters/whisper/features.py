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


def count_frames(num_samples: int) -> int:
    """Return how many frames hold `num_samples`, an even number as the encoder halves them."""
    return -(-num_samples // (2 * _HOP)) * 2


class Padding(Enum):
    """What stands in the frames after a window's last sample."""

    SILENCE = auto()
    """The features of digital silence, as `transformers` and OpenAI have it."""
    ZEROS = auto()
    """Zeros, somewhat louder than silence, as CTranslate2's users have it. Measured on whisper-base
    it errs less, above all on clips of a few seconds: see benchmarks/README.md."""


class LogMel:
    """Computes features on one device."""

    def __init__(self, num_bins: int, device: torch.device, padding: Padding) -> None:
        self._device = device
        self._padding = padding
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
        """Return features of shape (num_bins, 3000), float32, of at most 30 s of samples."""
        padded = torch.zeros(WINDOW_SAMPLES, device=self._device)
        padded[: len(samples)] = torch.from_numpy(samples).to(self._device, torch.float32)
        spectrum = torch.stft(padded, _FFT, _HOP, window=self._taper, return_complex=True)
        power = (spectrum[:, :-1].abs() ** 2).contiguous()
        log_mel = (self._filters @ power).clamp(min=1e-10).log10()
        log_mel = torch.maximum(log_mel, log_mel.max() - 8.0)
        features = (log_mel + 4.0) / 4.0
        if self._padding is Padding.ZEROS:
            features[:, len(samples) // _HOP :] = 0.0
        return features
