"""How likely each moment is speech: Silero VAD on onnxruntime, block by block, without torch."""

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Floats = NDArray[np.float32]

FRAME_SAMPLES = 512
"""Samples of one decision: 32 ms at 16 kHz, fixed by the model."""

# Source: silero-vad 6.2.3, silero_vad/sequence_vad.py: each frame is preceded by the last 64
# samples of the one before, and the LSTM state goes from call to call.
_CONTEXT_SAMPLES = 64
_STATE_SHAPE = (1, 1, 128)
_MODEL = Path("data", "silero_vad_16k_sequence.onnx")

BATCH_FRAMES = 32
"""Frames of one model call, about a second. Larger batches are no faster (measured 16 to 512)."""

# The model hears less the quieter it gets: of the frames of our test speech it calls 90 % speech
# as recorded, 86 % at -40 dB, 54 % at -60 dB and none at -80 dB.
_TARGET_RMS = 0.05
_MAX_GAIN = 1000.0
_SETTLED_FRAMES = 120 * BATCH_FRAMES
"""After so many frames of digital silence, two minutes, the model's state does not change any more,
and it need not be asked: hours that nobody recorded cost no time. (After 10 s it still does: what
follows minutes later is judged otherwise by up to 0.5.)"""
_LEVEL_MEMORY_FRAMES = 60 * BATCH_FRAMES  # a loud passage is forgotten by half every minute


@dataclass(frozen=True, slots=True)
class SpeechFrames:
    """What was heard in consecutive frames.

    Attributes:
        probabilities: Of speech, shape (num_frames,).
        energies: Mean square of the samples as they are, shape (num_frames,).
    """

    probabilities: Floats
    energies: Floats


class SpeechDetector:
    """Listens to one channel.

    Gives the same frames for the same samples however they are split into blocks. The level is
    raised for the model's ears only, after the loudest frame of the last minutes.
    """

    def __init__(self, *, batch_frames: int = BATCH_FRAMES) -> None:
        """Listen.

        Args:
            batch_frames: How many frames are judged at once: fewer answer sooner and cost more.
        """
        self._session = _load_session()
        self._batch = batch_frames * FRAME_SAMPLES
        self._memory = 0.5 ** (batch_frames / _LEVEL_MEMORY_FRAMES)
        self._hidden = np.zeros(_STATE_SHAPE, np.float32)
        self._cell = np.zeros(_STATE_SHAPE, np.float32)
        self._context = np.zeros(_CONTEXT_SAMPLES, np.float32)
        self._rest = np.empty(0, np.float32)
        self._level = 0.0
        self._num_silent = 0  # frames of digital silence just now …
        self._silent = np.float32(0)  # … and what the model makes of the last one

    def feed(self, samples: Floats) -> SpeechFrames:
        """Take more samples, shape (n,), 16 kHz; return the frames they complete."""
        pending = np.concatenate((self._rest, samples))
        whole = len(pending) - len(pending) % self._batch
        self._rest = pending[whole:]
        starts = range(0, whole, self._batch)
        return self._join([self._run(pending[i : i + self._batch]) for i in starts])

    def finish(self) -> SpeechFrames:
        """Return the frames that are left; the last is filled up with silence."""
        if not len(self._rest):
            return self._join([])
        missing = -len(self._rest) % FRAME_SAMPLES
        rest, self._rest = np.pad(self._rest, (0, missing)), np.empty(0, np.float32)
        return self._run(rest)

    def _run(self, samples: Floats) -> SpeechFrames:
        frames = samples.reshape(-1, FRAME_SAMPLES)
        energies = np.square(frames).mean(axis=1)
        self._level = max(self._level * self._memory, float(np.sqrt(energies.max())))
        if samples.any():
            self._num_silent = 0
        elif self._num_silent >= _SETTLED_FRAMES:
            return SpeechFrames(np.full(len(frames), self._silent, np.float32), energies)
        else:
            self._num_silent += len(frames)
        gain = min(max(1.0, _TARGET_RMS / max(self._level, 1e-9)), _MAX_GAIN)
        heard = frames * np.float32(gain)
        contexts = np.vstack((self._context, heard[:-1, -_CONTEXT_SAMPLES:]))
        self._context = heard[-1, -_CONTEXT_SAMPLES:]
        probabilities, self._hidden, self._cell = self._session.run(
            ["speech_probs", "hn", "cn"],
            {
                "input": np.concatenate((contexts, heard), axis=1),
                "h": self._hidden,
                "c": self._cell,
            },
        )
        found = np.asarray(probabilities, np.float32).reshape(-1)
        self._silent = found[-1]
        return SpeechFrames(found, energies)

    @staticmethod
    def _join(parts: list[SpeechFrames]) -> SpeechFrames:
        empty = np.empty(0, np.float32)
        return SpeechFrames(
            np.concatenate([empty, *(part.probabilities for part in parts)]),
            np.concatenate([empty, *(part.energies for part in parts)]),
        )


@cache
def _load_session() -> onnxruntime.InferenceSession:
    """Load the model once a process; a session may be run from several threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Not imported: the package's __init__ imports torch and sets its threads to one.
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("silero_vad")
    return onnxruntime.InferenceSession(
        str(Path(spec.origin).parent / _MODEL), options, providers=["CPUExecutionProvider"]
    )
