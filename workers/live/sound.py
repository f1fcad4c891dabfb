"""What a client sends, of any rate and encoding, to the samples that models hear."""

import numpy as np
import soxr
from numpy.typing import NDArray

from adapters.base import Samples
from core.live import Encoding
from core.transcript import SAMPLE_RATE_HZ


def _ulaw() -> NDArray[np.float32]:
    """Return the sample that each byte of G.711's mu-law stands for.

    Source: ITU-T G.711 (11/1988), table 2, in 16 bits: all bits are sent inverted; sign, three
    bits of exponent, four of mantissa, over a bias of 33 steps of 4.
    """
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = (((mantissa.astype(np.int32) << 3) + 132) << exponent) - 132
    return (np.where(code & 128, -magnitude, magnitude) / 32768).astype(np.float32)


def _alaw() -> NDArray[np.float32]:
    """Return the sample that each byte of G.711's A-law stands for.

    Source: ITU-T G.711 (11/1988), table 1, in 16 bits: even bits are sent inverted; sign (set for
    positive), exponent and mantissa, the lowest exponent without its leading one.
    """
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = ((code >> 4) & 7).astype(np.int32), (code & 15).astype(np.int32)
    steps = (mantissa << 4) + 8
    magnitude = np.where(exponent, (steps + 256) << np.maximum(exponent - 1, 0), steps)
    return (np.where(code & 128, magnitude, -magnitude) / 32768).astype(np.float32)


_LAWS = {Encoding.ULAW: _ulaw(), Encoding.ALAW: _alaw()}


class SoundReader:
    """Decodes and resamples one stream; what it gives does not depend on how the bytes are cut."""

    def __init__(self, rate_hz: int, encoding: Encoding) -> None:
        self._rate_hz = rate_hz
        self._encoding = encoding
        self._resampler = self._start()

    def read(self, data: bytes) -> Samples:
        """Take whole samples; return those at 16 kHz that are finished, shape (n,)."""
        samples = self._decode(data)
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

    def _decode(self, data: bytes) -> Samples:
        if self._encoding is Encoding.PCM16:
            return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)
        return _LAWS[self._encoding][np.frombuffer(data, np.uint8)]

    def _start(self) -> "soxr.ResampleStream | None":
        if self._rate_hz == SAMPLE_RATE_HZ:
            return None
        return soxr.ResampleStream(self._rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32")
