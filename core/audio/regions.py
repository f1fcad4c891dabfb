"""Where somebody speaks: probabilities a frame to regions of frames. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRules:
    """When frames count as speech; lengths in frames of 32 ms.

    The thresholds are low because a lost word costs more than a heard noise: hoarse or whispered
    speech stays at 0.2 to 0.5 for seconds, while noise of any kind stays below 0.1, beeps below
    0.2, and synthetic music reaches 0.32 in single frames (measured with Silero 6.2.3).

    Attributes:
        on: Speech begins at a frame with at least this probability.
        off: Speech goes on through frames with at least this probability.
        min_silence: It ends with this many frames below `off`.
        min_speech: A region is believed once it is this long …
        sure: … or has a frame with at least this probability.
    """

    on: float = 0.3
    off: float = 0.15
    min_silence: int = 5
    min_speech: int = 8
    sure: float = 0.9


@dataclass(slots=True)
class Region:
    """Frames [start, end) with speech."""

    start: int
    end: int


class SpeechTracker:
    """Follows one channel frame by frame.

    Attributes:
        num_frames: Frames seen so far.
        region: The region that is going on, believed or not; None in silence.
    """

    def __init__(self, rules: SpeechRules) -> None:
        self._rules = rules
        self.num_frames = 0
        self.region: Region | None = None
        self._peak = 0.0

    def forget(self) -> None:
        """End the region that is going on, if there is one."""
        self.region = None

    def push(self, probability: float) -> Region | None:
        """Take the next frame; return the region that is believed at it, going on or just ended."""
        rules, frame = self._rules, self.num_frames
        self.num_frames += 1
        if self.region is None:
            if probability < rules.on:
                return None
            self.region = Region(frame, frame)
            self._peak = 0.0
        region = self.region
        self._peak = max(self._peak, probability)
        if probability >= rules.off:
            region.end = frame + 1
        elif self.num_frames - region.end >= rules.min_silence:
            self.region = None
        is_long = region.end - region.start >= rules.min_speech
        return region if is_long or self._peak >= rules.sure else None
