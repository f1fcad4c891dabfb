"""Windows as complete FLAC streams in memory."""

import io

import numpy as np
import soundfile
from numpy.typing import NDArray

from core.transcript import SAMPLE_RATE_HZ

Samples = NDArray[np.float32]

_SCALE_16, _SCALE_24 = 2.0**15, 2.0**23


def encode_flac(samples: Samples) -> bytes:
    """Return mono 16 kHz `samples`, shape (n,) with n > 0, as one FLAC stream.

    Values are rounded to 24 bits and clipped to [-1, 1); if 16 bits hold every one exactly, as
    with most recordings at 16 kHz, the stream has 16.
    """
    scaled = samples.astype(np.float64) * _SCALE_16
    if np.array_equal(scaled, np.rint(scaled)) and np.abs(scaled).max(initial=0) < _SCALE_16:
        integers, subtype = scaled.astype(np.int16), "PCM_16"
    else:
        rounded = np.clip(np.rint(scaled * (_SCALE_24 / _SCALE_16)), -_SCALE_24, _SCALE_24 - 1)
        integers, subtype = rounded.astype(np.int32) << 8, "PCM_24"
    out = io.BytesIO()
    soundfile.write(out, integers, SAMPLE_RATE_HZ, subtype=subtype, format="FLAC")
    return out.getvalue()


def decode_flac(data: bytes) -> Samples:
    """Undo `encode_flac`: float32, shape (n,), the values that were encoded.

    Raises:
        ValueError: `data` is not such a stream, or not all of it.
    """
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            expected = file.frames
            samples: Samples = file.read(dtype="float32", always_2d=True)[:, 0]
            if file.samplerate != SAMPLE_RATE_HZ or len(samples) != expected:
                raise ValueError("not a whole 16 kHz FLAC stream")
    except soundfile.LibsndfileError as exc:
        raise ValueError("not a FLAC stream") from exc
    return samples
