"""One window batch through the model, whatever goes wrong in it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import structlog

from adapters.base import Adapter, Samples, Window
from adapters.streaming.base import DeltaTranscriber
from core.errors import AdapterFailure, DeviceOutOfMemory, TokenLimitReached
from core.transcript import SAMPLE_RATE_HZ, Hypothesis, samples_to_ms
from workers.room import Room

log = structlog.get_logger(__name__)

Answer = TypeVar("Answer")
Transcribe = Callable[[Sequence[Window]], list[Hypothesis]]

MAX_CUTS = 4
"""How often a window may be halved: 30 s end at 2 s, where no model reaches its token limit."""

_HOP = SAMPLE_RATE_HZ // 50
_SMOOTH_HOPS = 5


class Listener(Protocol):
    """Hears text while it is being decoded; see `adapters.streaming.base.DeltaSink`."""

    def restart(self, keys: Iterable[str]) -> None:
        """Drop what was heard of these windows: they are read anew."""
        ...

    def hear(self, key: str, delta: str) -> None:
        """Take the next piece of a window's text."""
        ...


def transcribe_each(
    adapter: Adapter,
    windows: Sequence[Window],
    *,
    room: Room,
    listener: Listener | None = None,
) -> list[Hypothesis | Exception]:
    """Return each window's hypothesis, or what went wrong with that window alone.

    Args:
        room: Learns how many windows fit the device.
        listener: Hears text early, from adapters that give it.
    """
    transcribe = adapter.transcribe
    if listener is not None and isinstance(adapter, DeltaTranscriber):
        transcribe = partial(_transcribe_aloud, adapter, listener)
    return run_parts(
        windows,
        transcribe,
        room=room,
        alone=lambda window: _transcribe_alone(transcribe, adapter.transcribe, window, 0),
    )


def run_parts(
    windows: Sequence[Window],
    run: Callable[[Sequence[Window]], list[Answer]],
    *,
    room: Room,
    alone: Callable[[Window], Answer] | None = None,
) -> list[Answer | Exception]:
    """Run a batch, as much of it at once as there is room for.

    Too little memory halves what is tried. Anything else may be one window's fault: each then runs
    alone, so that a failure stays with its own window.
    """
    answers: list[Answer | Exception] = []
    while len(answers) < len(windows):
        rest = windows[len(answers) :]
        done = _run_at_once(rest[: room.limit(len(rest))], run, room=room, alone=alone)
        answers += done
    return answers


def _run_at_once(
    windows: Sequence[Window],
    run: Callable[[Sequence[Window]], list[Answer]],
    *,
    room: Room,
    alone: Callable[[Window], Answer] | None = None,
) -> list[Answer | Exception]:
    """Run a batch; if that fails, smaller ones."""
    try:
        is_one = len(windows) == 1
        answers = [alone(windows[0])] if alone is not None and is_one else run(windows)
        if len(answers) != len(windows):
            raise AdapterFailure(f"{len(answers)} answers for {len(windows)} windows")
    except DeviceOutOfMemory as exc:
        if len(windows) == 1:
            return [exc]
        log.warning("batch.halved", num_windows=len(windows))
        room.shrink(-(-len(windows) // 2))
        return run_parts(windows, run, room=room, alone=alone)
    except Exception as exc:  # noqa: BLE001 - whatever a model raises must stay with its window
        if len(windows) == 1:
            return [exc]
        log.warning("batch.isolated", num_windows=len(windows), error=str(exc))
        return [
            answer
            for window in windows
            for answer in _run_at_once([window], run, room=room, alone=alone)
        ]
    room.fit(len(windows))
    return list(answers)


def quiet_spot(samples: Samples) -> int:
    """Return where to cut in two: about the quietest 0.1 s of the middle half.

    Of spots as quiet as that the one nearest to the middle, so that parts shrink fast.
    """
    num_hops = len(samples) // _HOP
    if num_hops < 4 * _SMOOTH_HOPS:
        return len(samples) // 2
    hops = samples[: num_hops * _HOP].reshape(num_hops, _HOP)
    energies = np.convolve((hops**2).mean(axis=1), np.ones(_SMOOTH_HOPS), mode="same")
    hops_inside = np.arange(num_hops // 4, num_hops - num_hops // 4)
    inside = energies[hops_inside]
    quiet = hops_inside[inside <= 1.5 * inside.min()]
    nearest = quiet[np.argmin(np.abs(quiet - num_hops // 2))]
    return int(nearest * _HOP + _HOP // 2)


def _transcribe_aloud(
    adapter: DeltaTranscriber, listener: Listener, windows: Sequence[Window]
) -> list[Hypothesis]:
    """Transcribe while the listener hears it; after an error it has heard nothing."""
    try:
        return adapter.transcribe_stream(
            windows, lambda index, delta: listener.hear(windows[index].key, delta)
        )
    except Exception:
        listener.restart(window.key for window in windows)
        raise


def _transcribe_alone(
    transcribe: Transcribe, transcribe_part: Transcribe, window: Window, num_cuts: int
) -> Hypothesis:
    """Transcribe one window; if it holds more than the model can write, in two parts.

    Nobody listens to parts: text that was told of the whole window may read otherwise in them.
    """
    try:
        answers = transcribe([window])
    except TokenLimitReached:
        if num_cuts == MAX_CUTS or len(window.samples) < 2:
            raise
        cut = quiet_spot(window.samples)
        log.info("window.cut_again", window_id=window.key, at_ms=samples_to_ms(cut))
        parts = (
            replace(window, key=f"{window.key}/0", samples=window.samples[:cut]),
            replace(window, key=f"{window.key}/1", samples=window.samples[cut:]),
        )
        left, right = (
            _transcribe_alone(transcribe_part, transcribe_part, part, num_cuts + 1)
            for part in parts
        )
        return _join(left, right, offset_ms=samples_to_ms(cut))
    if len(answers) != 1:
        raise AdapterFailure(f"{len(answers)} answers for one window")
    return answers[0]


def _join(left: Hypothesis, right: Hypothesis, *, offset_ms: int) -> Hypothesis:
    return Hypothesis(
        segments=left.segments + tuple(segment.shift(offset_ms) for segment in right.segments),
        language=left.language if left.segments else right.language or left.language,
        warnings=tuple(dict.fromkeys(left.warnings + right.warnings)),
    )
