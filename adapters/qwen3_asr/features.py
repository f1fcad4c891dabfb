"""Log-mel features, computed clip by clip and, for streams, frame by frame."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adapters.base import Samples

DYNAMIC_RANGE = 8.0
"""The features keep 8 decades below the loudest bin of the clip; see `LogMel.normalise`."""


def prepare_samples(samples: Samples, *, min_samples: int) -> Samples:
    """Return `samples` with their peak at 1.0 at most and zeros up to `min_samples`.

    Source: QwenLM/Qwen3-ASR c17a131, qwen_asr/inference/utils.py normalize_audio_input.
    """
    samples = np.ascontiguousarray(samples, dtype=np.float32)
    peak = float(np.abs(samples).max(initial=0.0))
    if peak > 1.0:
        samples = samples / np.float32(peak)
    return pad_samples(samples, min_samples=min_samples)


def pad_samples(samples: Samples, *, min_samples: int) -> Samples:
    """Return `samples` with zeros at the end up to `min_samples`."""
    missing = min_samples - len(samples)
    return np.pad(samples, (0, missing)) if missing > 0 else samples


class LogMel:
    """The log-mel spectrogram of transformers' `Qwen3ASRFeatureExtractor`, in two halves.

    The halves are apart because the second depends on the loudest bin of the whole clip, which a
    stream knows only so far. Equal to the extractor for a clip alone (tested); in a batch the
    extractor pads first and then counts one frame more for some lengths, which changes texts.

    Attributes:
        hop: Samples from one frame to the next (160: 10 ms).
        reach: Samples a frame needs on each side of its position (200).
        min_samples: Shortest clip; zeros follow shorter ones.
    """

    def __init__(self, extractor: Any, device: torch.device) -> None:  # noqa: ANN401
        self.hop = int(extractor.hop_length)
        self.num_fft = int(extractor.n_fft)
        self.reach = self.num_fft // 2
        self.min_samples = int(extractor.min_length)
        self.num_bins = int(extractor.feature_size)
        self._filters = torch.from_numpy(extractor.mel_filters).to(device, torch.float32).T
        self._window = torch.hann_window(self.num_fft, device=device)
        self._device = device

    def raw(self, samples: Samples) -> Tensor:
        """Return log10 mel power, shape (num_bins, len(samples) // hop)."""
        return self.raw_many([samples])[0]

    def raw_many(self, clips: Sequence[Samples]) -> list[Tensor]:
        """Return `raw` of each clip, all computed together.

        Frames are centred on multiples of `hop`, and audio is mirrored at its ends: as
        `torch.stft` does, which takes clips of one length only.
        """
        if not clips:
            return []
        counts = [len(samples) // self.hop for samples in clips]
        frames = torch.empty(sum(counts), self.num_fft, device=self._device)
        for own, samples in zip(torch.split(frames, counts), clips, strict=True):
            before, after = samples[self.reach : 0 : -1], samples[-2 : -self.reach - 2 : -1]
            mirrored = np.concatenate([before, samples, after])
            wave = torch.from_numpy(mirrored).to(self._device)
            torch.mul(wave.unfold(0, self.num_fft, self.hop)[: len(own)], self._window, out=own)
        spectrum = torch.fft.rfft(frames)
        # A third of the time of `abs() ** 2`.
        power = self._filters @ spectrum.real.square().addcmul_(spectrum.imag, spectrum.imag).T
        return list(torch.split(torch.clamp(power, min=1e-10).log10_(), counts, dim=1))

    @staticmethod
    def normalise(raw: Tensor, ceiling: float) -> Tensor:
        """Return features from `raw`, whose clip's loudest bin is `ceiling`."""
        return torch.clamp(raw, min=ceiling - DYNAMIC_RANGE).add_(4.0).div_(4.0)

    def features(self, samples: Samples) -> Tensor:
        """Return the features of a whole clip, shape (num_bins, frames)."""
        raw = self.raw(prepare_samples(samples, min_samples=self.min_samples))
        return self.normalise(raw, float(raw.max()))
