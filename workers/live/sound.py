"""PCM16 of any rate to the samples that models hear."""

import numpy as np
import soxr

from adapters.base import Samples
from core.transcript import SAMPLE_RATE_HZ


class PcmReader:
    """Resamples one stream; what it gives does not depend on how the bytes are cut."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._resampler = self._start()

    def read(self, data: bytes) -> Samples:
        """Take whole samples; return those at 16 kHz that are finished, shape (n,)."""
        samples = np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)
        if self._resampler is None:
            return samples
        resampled: Samples = self._resampler.resample_chunk(samples)
        return resampled

    def flush(self) -> Samples:
        """Return the rest of the audio so far; what follows is a new stream."""
        empty = np.zeros(0, np.float32)
        if self._resampler is None:
            return empty
        rest: Samples = self._resampler.resample_chunk(empty, last=True)
        self._resampler = self._start()
        return rest

    def _start(self) -> "soxr.ResampleStream | None":
        if self._rate_hz == SAMPLE_RATE_HZ:
            return None
        return soxr.ResampleStream(self._rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32")
