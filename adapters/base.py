"""The contract between the batching engine and a model family. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from core.options import TaskKind, Timestamps
from core.transcript import SAMPLE_RATE_HZ, Hypothesis

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The audio of one forward pass and how to read it.

    Attributes:
        key: Identifies the window over calls (the row's id), so that an adapter may reuse what
            `detect_language` computed for it.
        samples: Shape (num_samples,), float32, mono, 16 kHz, within [-1, 1] or nearly so.
        language: Code to force, or None to detect it from this window alone.
        is_language_voted: Whether `language` is what most of the media speaks, not what the caller
            said: a part that makes no sense in it may be heard in another.
        prompt: Context before the window, or None.
        temperature: Fixed sampling temperature, or None for greedy with the fallback ladder.
        with_logprobs: Whether segments are to have `token_logprobs`.
    """

    key: str
    samples: Samples
    language: str | None = None
    is_language_voted: bool = False
    prompt: str | None = None
    task: TaskKind = TaskKind.TRANSCRIBE
    timestamps: Timestamps = Timestamps.SEGMENT
    temperature: float | None = None
    with_logprobs: bool = False

    @property
    def duration_ms(self) -> int:
        """Length, rounded to the nearest millisecond."""
        return (len(self.samples) * 1000 + SAMPLE_RATE_HZ // 2) // SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSpec:
    """What the pipeline must know of a model family before any weights are loaded.

    Attributes:
        name: Names the queue (`asr.<name>`) and the rows' adapter, e.g. "whisper".
        window_ms: Longest window the adapter takes.
        padded_ms: What every window costs at least (Whisper pads to 30 s); 0 if cost is length.
        detects_by_vote: Whether the engine should settle `language=auto` for the whole job with
            `detect_language`; otherwise each window is left to the adapter.
        supports_translate: Whether `task=translate` works.
        supports_chunked_streaming: Whether `adapters.streaming` can drive it step by step.
        uses_aligner: Whether word times come from a second checkpoint, `LoadOptions.extra`'s
            "aligner".
    """

    name: str
    window_ms: int
    padded_ms: int = 0
    detects_by_vote: bool = True
    supports_translate: bool = False
    supports_chunked_streaming: bool = False
    uses_aligner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a checkpoint.

    Attributes:
        folder: An ordinary Hugging Face folder.
        device: "auto", "auto:1", "cpu", "cuda", "cuda:1", "mps"; see `adapters.device`.
        dtype: "auto" (the adapter's measured best for the device), "float32", "float16",
            "bfloat16" or "int8" (CPU only).
        num_threads: Threads for the CPU; 0 leaves torch's default.
    """

    folder: Path
    device: str = "cpu"
    dtype: str = "auto"
    num_threads: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)


class Adapter(Protocol):
    """A loaded checkpoint.

    One process owns one adapter and calls it from one thread, so implementations need no locks.
    Answers depend on the window alone, never on its neighbours in the batch.
    """

    spec: AdapterSpec

    @property
    def languages(self) -> frozenset[str]:
        """Codes this checkpoint can be forced to; {"en"} for an English-only one."""
        ...

    def detect_language(self, windows: Sequence[Window]) -> list[dict[str, float]]:
        """Return for each window the probability of every language (sums to 1)."""
        ...

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        """Transcribe a batch.

        Args:
            windows: At least one, none longer than the spec's `window_ms`.

        Returns:
            One hypothesis a window, in order, with times relative to its window.

        Raises:
            DeviceOutOfMemory: The batch is too large; a smaller one may fit.
            AdapterFailure: A window's answer breaks this contract; the engine tries each alone.
        """
        ...

    def close(self) -> None:
        """Free the device's memory."""
        ...
