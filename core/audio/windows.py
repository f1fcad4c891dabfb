"""Cuts what was heard into windows: full, at pauses, no sample of speech lost or doubled. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from core.audio.regions import Region, SpeechRules, SpeechTracker

_PAUSE_WORTH_FRAMES = 31  # a pause of more than a second is not better still
_FILL_WEIGHT = 1.5
_HALF_SPOT_FRAMES = 2  # a spot is as quiet as the 128 ms around it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWindow:
    """The audio of one forward pass, as samples [start_sample, start_sample + num_samples).

    Attributes:
        index: Position among the windows of its media, from 0.
        channel: Row of the decoded stream it belongs to; 0 for `mix`.
    """

    index: int
    start_sample: int
    num_samples: int
    channel: int = 0

    @property
    def end_sample(self) -> int:
        """The sample after its last."""
        return self.start_sample + self.num_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRules:
    """How windows are cut; lengths in frames of `frame_samples`, unless they say otherwise.

    Attributes:
        max_samples: No window has more samples; at least two frames.
        first_max_samples: Nor has the first of several, if it is to be there sooner.
        is_everything: Cover the whole media instead of speech only (`vad=false`).
        pad: Silence kept before and after speech where there is any, 0.8 s: it costs nothing in
            a padded window, and holds what was spoken too softly to be noticed.
        max_gap: A longer silence ends a window. 8 s, since a shorter one rarely saves a window
            (measured: 75 windows against 70 for everything with 3 s), and sometimes it is none.
        min_fill: Earliest place for a cut, as a part of the longest window.
        search: How far back from the end the quietest spot is looked for.
        last_min: Shortest last window; when less than this would be left over, the last two share
            what there is. A recogniser without context does badly on two seconds.
    """

    max_samples: int
    first_max_samples: int | None = None
    frame_samples: int = 512
    is_everything: bool = False
    pad: int = 25
    max_gap: int = 250
    min_fill: float = 0.5
    search: int = 250
    last_min: int = 250
    speech: SpeechRules = field(default_factory=SpeechRules)

    @property
    def max_frames(self) -> int:
        """Most whole frames in a window."""
        return self.max_samples // self.frame_samples

    @property
    def first_max_frames(self) -> int:
        """Most whole frames in the first of several windows."""
        return min(self.max_samples, self.first_max_samples or self.max_samples) // (
            self.frame_samples
        )


Span = tuple[int, int]
"""Samples [start, end)."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a window may be cut, in frames: best at `target`, and neither before nor after."""

    earliest: int
    target: int
    limit: int

    def is_reached_by(self, pause: Region) -> bool:
        return pause.start <= self.limit and pause.end >= self.earliest

    def score(self, pause: Region, max_frames: int) -> float:
        worth = min(1.0, (pause.end - pause.start) / _PAUSE_WORTH_FRAMES)
        miss = max(pause.start - self.target, self.target - pause.end, 0)
        return worth + _FILL_WEIGHT * (1 - miss / max_frames)


def _find_place(rules: WindowRules, max_frames: int, start: int, end: int | None) -> _Place:
    """Return where to cut what began at `start`: late, or in the middle of the last two windows.

    Args:
        max_frames: Most that the window may have.
        end: See `WindowPlanner._cut`.
    """
    limit = start + max_frames
    if end is None or end - start > rules.max_frames + rules.last_min:
        earliest = start + max(1, int(rules.min_fill * max_frames))
        return _Place(earliest=earliest, target=limit, limit=limit)
    earliest = min(limit, max(start + 1, end - rules.max_frames))
    return _Place(earliest=earliest, target=max(earliest, (start + end) // 2), limit=limit)


class WindowPlanner:
    """Plans the windows of one channel while it is being heard.

    Frames go in, windows come out as soon as they are certain: when it is known that they are not
    the last but one. What comes out depends on the frames alone, not on how they are grouped.

    A full window is cut in the pause of its second half that is best: long and late; a second more
    of pause is worth two thirds of a window. Only speech without any pause is cut inside, at the
    quietest spot of the last eight seconds. The last two windows before an end are cut alike, but
    towards equal length.

    Attributes:
        num_speech_frames: Frames in the windows so far that are believed to be speech.
    """

    def __init__(self, rules: WindowRules) -> None:
        self._rules = rules
        self._tracker = SpeechTracker(rules.speech)
        self._floor = 0  # no window may begin before this frame
        self._start: int | None = 0 if rules.is_everything else None
        self._regions: list[Region] = []  # of the window that is open
        self._energies: list[float] = []
        self._energies_start = 0
        self._done: list[Span] = []
        self._has_begun = False  # the first window is out
        self.num_speech_frames = 0

    @property
    def earliest_sample(self) -> int:
        """First sample that a future window can include."""
        frame = self._start
        if frame is None:
            candidate = self._tracker.region
            first = self._tracker.num_frames if candidate is None else candidate.start
            frame = max(self._floor, first - self._rules.pad)
        return self._to_samples(frame)

    def push(self, probabilities: Iterable[float], energies: Iterable[float]) -> list[Span]:
        """Take the next whole frames, equally many of both; return the windows they complete."""
        self._energies.extend(energies)
        for probability in probabilities:
            # More than a full window is pending: speech may end before it makes a good last one.
            while (
                self._start is not None
                and self._tracker.num_frames > self._start + self._max_frames + self._rules.last_min
            ):
                self._cut(self._start, None)
            self._hear(probability)
        return self._take()

    def finish(
        self, probabilities: Iterable[float], energies: Iterable[float], *, num_samples: int
    ) -> list[Span]:
        """Take the rest of the frames and return the last windows.

        Args:
            num_samples: Length of the media, which may end inside the last frame.
        """
        spans = self.push(probabilities, energies)
        if self._tracker.region is not None and self._start is not None:
            self._believe(self._tracker.region)  # no time left to grow, and maybe half a word
        while (start := self._start) is not None:
            is_everything = self._rules.is_everything
            end = self._tracker.num_frames if is_everything else self._padded_end(start)
            length = min(self._to_samples(end), num_samples) - self._to_samples(start)
            if length > self._rules.max_samples:
                self._cut(start, end)
                continue
            if length > 0:
                self._emit(start, end)
            self._start = None
        return [(start, min(end, num_samples)) for start, end in spans + self._take()]

    def _hear(self, probability: float) -> None:
        region = self._tracker.push(probability)
        if region is not None:
            self._believe(region)
        if self._start is None or self._rules.is_everything or self._tracker.region is not None:
            return
        if self._tracker.num_frames - self._regions[-1].end > self._rules.max_gap:
            self._close()

    def _believe(self, region: Region) -> None:
        """Make `region` part of the window that is open, or open one for it."""
        is_known = self._regions and self._regions[-1] is region
        if is_known or region.end <= self._floor:  # all of it was in a window before
            return
        region.start = max(region.start, self._floor)
        if (
            self._start is not None
            and not self._rules.is_everything
            and region.start - self._regions[-1].end > self._rules.max_gap
        ):
            self._close()
        if self._start is None:
            self._start = max(self._floor, region.start - self._rules.pad)
        self._regions.append(region)

    def _close(self) -> None:
        """End what is open after its last region."""
        while (start := self._start) is not None:
            end = self._padded_end(start)
            if end - start > self._rules.max_frames:
                self._cut(start, end)
            else:
                self._emit(start, end)
                self._start = None

    def _cut(self, start: int, end: int | None) -> None:
        """End the full window that began at `start` where it hurts least.

        Args:
            end: Where the speech or the media ends that is to be cut; None if it goes on for long.
        """
        rules = self._rules
        max_frames = self._max_frames if end is None else rules.max_frames
        place = _find_place(rules, max_frames, start, end)
        pauses = [p for p in self._find_pauses(start) if place.is_reached_by(p)]
        best = max(pauses, key=lambda p: (place.score(p, max_frames), p.start), default=None)
        if best is None:
            last = min(place.limit, place.target + (rules.search // 2))
            cut = resume = self._find_quietest(max(place.earliest, last - rules.search), last)
        elif rules.is_everything or best.end - best.start <= 2 * rules.pad:
            last = min(best.end, place.limit)
            first = max(best.start, place.earliest, last - rules.search)
            cut = resume = self._find_quietest(first, last)
        else:
            cut, resume = min(best.start + rules.pad, place.limit), best.end - rules.pad
        later = [region for region in self._regions if region.end > cut]
        self._emit(start, cut)
        for region in later:
            region.start = max(region.start, cut)
        self._regions = later
        self._start = resume if later or rules.is_everything else None

    def _find_pauses(self, start: int) -> list[Region]:
        """Return the pauses of the open window; the last may still be going on."""
        edges = [Region(start, start), *self._regions]
        now = self._tracker.num_frames
        candidate = self._tracker.region
        if candidate is None:
            edges.append(Region(now, now))
        elif not self._regions or candidate is not self._regions[-1]:
            edges.append(candidate)
        pauses = [Region(a.end, b.start) for a, b in pairwise(edges) if b.start > a.end]
        return [pause for pause in pauses if pause.start > start or self._rules.is_everything]

    def _find_quietest(self, first: int, last: int) -> int:
        """Return the quietest border between frames in [first, last]; the latest of equals."""
        # Neither before the window nor beyond the frames heard so far: what else is still or
        # already here depends on how frames are grouped.
        offset = max(first - _HALF_SPOT_FRAMES, self._start or 0)
        end = min(last + _HALF_SPOT_FRAMES, self._tracker.num_frames)
        heard = self._energies[offset - self._energies_start : end - self._energies_start]
        sums = np.concatenate(([0.0], np.cumsum(heard)))
        borders = np.arange(first, last + 1) - offset
        low = np.maximum(borders - _HALF_SPOT_FRAMES, 0)
        high = np.minimum(borders + _HALF_SPOT_FRAMES, len(sums) - 1)
        loudness = (sums[high] - sums[low]) / np.maximum(high - low, 1)
        return last - int(np.argmin(loudness[::-1]))

    @property
    def _max_frames(self) -> int:
        """Most frames of the window that is open, if it is not the last."""
        return self._rules.max_frames if self._has_begun else self._rules.first_max_frames

    def _emit(self, start: int, end: int) -> None:
        self._has_begun = True
        self.num_speech_frames += sum(
            max(0, min(region.end, end) - region.start) for region in self._regions
        )
        self._done.append((self._to_samples(start), self._to_samples(end)))
        self._floor = end
        self._regions = []

    def _padded_end(self, start: int) -> int:
        """Return where what began at `start` ends; padding alone makes no window too long."""
        speech_end = self._regions[-1].end
        end = min(speech_end + self._rules.pad, self._tracker.num_frames)
        return min(end, max(speech_end, start + self._rules.max_frames))

    def _to_samples(self, frame: int) -> int:
        return frame * self._rules.frame_samples

    def _take(self) -> list[Span]:
        done, self._done = self._done, []
        first = self.earliest_sample // self._rules.frame_samples
        del self._energies[: max(0, first - self._energies_start)]
        self._energies_start = max(first, self._energies_start)
        return done
