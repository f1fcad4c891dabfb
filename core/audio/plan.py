"""From a decoding media to its windows with their samples, in bounded memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.audio.decode import MediaStream
from core.audio.media import MediaInfo
from core.audio.speech import FRAME_SAMPLES, SpeechDetector
from core.audio.windows import PlannedWindow, Span, WindowPlanner, WindowRules
from core.transcript import SAMPLE_RATE_HZ, samples_to_ms

Samples = NDArray[np.float32]

_BATCH_SAMPLES = 32 * FRAME_SAMPLES

_NO_SOUND = 1e-4
"""-80 dBFS: below the noise of a quiet room, and of any microphone."""

_LEAD_IN_SAMPLES = SAMPLE_RATE_HZ // 10
"""How much without any sound a window begins with at most. A margin before speech is for what the
detector hears too late; where nothing was recorded there is none, and models hear the first word
worse after a longer one (whisper-base: "ill-disposed" after up to 0.1 s, "ill-sposed" after most
lengths from 0.15 to 0.85 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSummary:
    """What is known once a media was read to its end.

    Attributes:
        duration_ms: Of the decoded audio, silence before a late track included.
        speech_ms: Time believed to be speech, summed over channels.
        num_windows: How many windows were planned.
        num_channels: Channels that were listened to; 1 for `mix`.
        warnings: Codes such as "media_damaged".
    """

    info: MediaInfo
    duration_ms: int
    speech_ms: int
    num_windows: int
    num_channels: int
    warnings: tuple[str, ...]


class WindowIterator:
    """Yields the windows of a stream with their samples while it is being decoded.

    Windows are numbered in the order they come, which depends on the media and the rules only, so
    that a `prepare` that starts over meets the same windows. Keeps about one window and a few
    seconds of samples a channel in memory.

    Attributes:
        is_near_end: The stream was read to its end; what windows still come, come at once.
    """

    def __init__(
        self,
        stream: MediaStream,
        rules: WindowRules,
        on_block: Callable[[], None] = lambda: None,
    ) -> None:
        self._stream = stream
        self._on_block = on_block
        # Before a late track lies silence that nobody recorded. What is said would seem to begin
        # in it if a window's margin reached there.
        late_ms = 0 if rules.is_everything else stream.info.start_ms
        self._channels = [
            _Channel(number, rules, first_sample=late_ms * SAMPLE_RATE_HZ // 1000)
            for number in range(stream.num_channels)
        ]
        self._num_windows = 0
        self._summary: MediaSummary | None = None
        self.is_near_end = False

    def __iter__(self) -> Iterator[tuple[PlannedWindow, Samples]]:
        """Yield (window, samples of shape (num_samples,)); can be consumed once.

        Raises:
            MediaError: Whatever decoding meets; see `core.audio.decode`.
        """
        pending = np.empty((len(self._channels), 0), np.float32)
        for block in self._stream:
            self._on_block()
            pending = np.concatenate((pending, block), axis=1)
            # Fixed batches for all channels in turn: the order must not depend on the blocks.
            whole = pending.shape[1] - pending.shape[1] % _BATCH_SAMPLES
            for first in range(0, whole, _BATCH_SAMPLES):
                for channel in self._channels:
                    part = pending[channel.number, first : first + _BATCH_SAMPLES]
                    yield from self._number(channel.hear(part))
            pending = pending[:, whole:]
        self.is_near_end = True
        for channel in self._channels:
            yield from self._number(channel.hear(pending[channel.number]))
            yield from self._number(channel.finish())
        self._summary = MediaSummary(
            info=self._stream.info,
            duration_ms=samples_to_ms(self._stream.num_samples),
            speech_ms=sum(channel.speech_ms for channel in self._channels),
            num_windows=self._num_windows,
            num_channels=len(self._channels),
            warnings=self._stream.warnings,
        )

    @property
    def summary(self) -> MediaSummary:
        """What was found; only there once all windows were taken."""
        if self._summary is None:
            raise RuntimeError("the windows were not taken to the end")
        return self._summary

    def _number(
        self, windows: list[tuple[int, int, Samples]]
    ) -> Iterator[tuple[PlannedWindow, Samples]]:
        for channel, start, samples in windows:
            window = PlannedWindow(
                index=self._num_windows,
                start_sample=start,
                num_samples=len(samples),
                channel=channel,
            )
            self._num_windows += 1
            yield window, samples


def iter_windows(
    stream: MediaStream,
    *,
    window_ms: int,
    vad: bool,
    first_window_ms: int | None = None,
    on_block: Callable[[], None] = lambda: None,
) -> WindowIterator:
    """Plan the windows of `stream`.

    Args:
        window_ms: Longest window the adapter takes.
        vad: Leave out what is not speech; else cover every sample.
        first_window_ms: A shorter limit for the first of several windows.
        on_block: Called while the stream is read, also where no windows come for hours; what it
            raises ends the reading.
    """
    per_ms = SAMPLE_RATE_HZ // 1000
    rules = WindowRules(
        max_samples=window_ms * per_ms,
        first_max_samples=None if first_window_ms is None else first_window_ms * per_ms,
        is_everything=not vad,
    )
    return WindowIterator(stream, rules, on_block)


class _Channel:
    """One channel's detector, planner and the samples that windows may still need."""

    def __init__(self, number: int, rules: WindowRules, *, first_sample: int) -> None:
        self.number = number
        self._first_sample = first_sample
        self._is_everything = rules.is_everything
        self._detector = SpeechDetector()
        self._planner = WindowPlanner(rules)
        self._samples = np.empty(0, np.float32)
        self._first = 0  # position of _samples[0]

    @property
    def speech_ms(self) -> int:
        return samples_to_ms(self._planner.num_speech_frames * FRAME_SAMPLES)

    def hear(self, samples: Samples) -> list[tuple[int, int, Samples]]:
        self._samples = np.concatenate((self._samples, samples))
        frames = self._detector.feed(samples)
        return self._take(
            self._planner.push(frames.probabilities.tolist(), frames.energies.tolist())
        )

    def finish(self) -> list[tuple[int, int, Samples]]:
        frames = self._detector.finish()
        spans = self._planner.finish(
            frames.probabilities.tolist(),
            frames.energies.tolist(),
            num_samples=self._first + len(self._samples),
        )
        return self._take(spans)

    def _take(self, spans: list[Span]) -> list[tuple[int, int, Samples]]:
        windows = []
        for span_start, end in spans:
            start = max(span_start, self._first_sample)
            if not self._is_everything:
                start += _num_lead_in(self._samples[start - self._first : end - self._first])
            if start < end:
                samples = self._samples[start - self._first : end - self._first].copy()
                windows.append((self.number, start, samples))
        unneeded = self._planner.earliest_sample - self._first
        if unneeded > 0:
            self._samples = self._samples[unneeded:].copy()
            self._first += unneeded
        return windows


def _num_lead_in(samples: Samples) -> int:
    """Return how many samples of the beginning a window can do without."""
    sounds = np.flatnonzero(np.abs(samples) > _NO_SOUND)
    return max(0, int(sounds[0]) - _LEAD_IN_SAMPLES) if len(sounds) else 0
