"""The audio of a stream that has come in but was not heard yet, and where it is cut. No torch."""

from dataclasses import dataclass

import numpy as np

from adapters.base import Samples
from adapters.streaming.config import ChunkedStreamingConfig
from adapters.streaming.pauses import (
    FRAME,
    FRAME_MS,
    SILENCE_DB,
    LevelMeter,
    find_quietest,
    measure_levels,
)
from core.transcript import SAMPLE_RATE_HZ

_PREROLL_FRAMES = 10
"""Silence kept before sound: 200 ms."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The audio of one step.

    Attributes:
        start_sample: Position in the stream.
        closes: Whether the utterance ends with it; it may then be empty.
    """

    samples: Samples
    start_sample: int
    closes: bool


class Intake:
    """Cuts a stream into chunks and utterances, in whole level frames; by the audio alone.

    An utterance ends in the middle of a pause, or at the quietest spot of a chunk when it gets too
    long. Silence before an utterance is dropped, so that it costs nothing.
    """

    def __init__(self, config: ChunkedStreamingConfig) -> None:
        self._config = config
        self._meter = LevelMeter()
        self._pending = np.zeros(0, dtype=np.float32)
        self._start = 0  # stream position of `_pending[0]`
        self._levels: list[float] = []  # of the whole frames in `_pending`
        self._quiet: list[int] = []  # quiet frames up to each of them
        self._num_heard = 0  # frames of the open utterance given out already
        self._has_sound = False  # among those
        self._cut: int | None = None  # frame of `_pending` where the open utterance ends
        self._is_finished = False

    @property
    def buffered_ms(self) -> int:
        """Audio that waits, in milliseconds."""
        return len(self._pending) * 1000 // SAMPLE_RATE_HZ

    def push(self, samples: Samples) -> None:
        """Take new audio, clipped to [-1, 1]."""
        clipped = np.clip(samples, -1.0, 1.0).astype(np.float32, copy=False)
        self._pending = np.concatenate([self._pending, clipped])
        for level in measure_levels(self._pending[len(self._levels) * FRAME :]):
            self._meter.read(level)
            self._levels.append(level)
            self._quiet.append(self._meter.num_quiet)

    def end_utterance(self) -> None:
        """End the open utterance after all audio so far, but for a broken frame."""
        self._cut = len(self._levels)

    def finish(self) -> None:
        """Say that no more audio comes."""
        self._is_finished = True

    def take(self) -> Chunk | None:
        """Return the next chunk to hear, or None while there is too little audio for one."""
        if not self._num_heard:
            self._drop_silence()
        if self._cut is None:
            self._cut = self._find_pause()
        size = self._next_size()
        if self._cut == 0 and not self._num_heard:
            self._cut = None  # nothing but silence was to end
        if self._cut is not None and self._cut <= size:
            return self._give(self._cut, closes=True)
        if len(self._levels) >= size:
            room = self._config.max_utterance_ms // FRAME_MS - self._num_heard
            # The last chunk is to have enough room for a quiet spot.
            if size + self._config.chunk_ms // FRAME_MS // 2 <= room:
                return self._give(size, closes=False)
            return self._give(find_quietest(self._levels[: min(size, room)]), closes=True)
        if self._is_finished and (self._num_heard or self._levels):
            return self._give(len(self._levels), closes=True, with_rest=True)
        return None

    def _next_size(self) -> int:
        """Return the frames of the next chunk that no pause ends.

        Chunks end on a grid, whatever an utterance's beginning, so that streams fed at the same
        pace are due at the same time and share their steps. So the first chunk of an utterance
        has between half and one and a half of the usual length.
        """
        size = self._config.chunk_ms // FRAME_MS
        missing = size - self._start // FRAME % size
        return missing if 2 * missing >= size else missing + size

    def _drop_silence(self) -> None:
        loud = next((at for at, db in enumerate(self._levels) if db > SILENCE_DB), None)
        if loud is None:
            # All of it at the end of the stream; else what may be the beginning of a word stays.
            keep = 0 if self._is_finished or self._cut is not None else _PREROLL_FRAMES
            first = max(0, len(self._levels) - keep)
        else:
            first = max(0, loud - _PREROLL_FRAMES)
        self._advance(first)

    def _find_pause(self) -> int | None:
        """Return the frame of `_pending` in whose pause the utterance ends, if there is one."""
        has_sound = self._has_sound
        for at, (level, num_quiet) in enumerate(zip(self._levels, self._quiet, strict=True)):
            has_sound = has_sound or level > SILENCE_DB
            needed = self._needed_pause_ms((self._num_heard + at + 1) * FRAME_MS)
            if has_sound and needed is not None and num_quiet * FRAME_MS >= needed:
                return max(0, at + 1 - num_quiet // 2)
        return None

    def _needed_pause_ms(self, utterance_ms: int) -> int | None:
        if utterance_ms < self._config.min_utterance_ms:
            return None
        is_long = utterance_ms >= self._config.soft_utterance_ms
        return self._config.short_pause_ms if is_long else self._config.pause_ms

    def _give(self, num_frames: int, *, closes: bool, with_rest: bool = False) -> Chunk:
        end = len(self._pending) if with_rest else num_frames * FRAME
        chunk = Chunk(self._pending[:end].copy(), self._start, closes)
        self._has_sound = self._has_sound or any(
            level > SILENCE_DB for level in self._levels[:num_frames]
        )
        self._num_heard += num_frames
        self._advance(num_frames, with_rest=with_rest)
        if closes:
            self._num_heard, self._has_sound, self._cut = 0, False, None
        return chunk

    def _advance(self, num_frames: int, *, with_rest: bool = False) -> None:
        end = len(self._pending) if with_rest else num_frames * FRAME
        self._pending = self._pending[end:]
        self._start += end
        del self._levels[:num_frames], self._quiet[:num_frames]
        if self._cut is not None:
            self._cut = max(0, self._cut - num_frames)
