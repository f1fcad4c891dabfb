"""Collects windows into storage objects that grow, so that recognition starts early."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.audio.flac import Samples, encode_flac
from core.audio.windows import PlannedWindow
from core.storage import Storage
from lifecycle.jobs import windows_prefix
from lifecycle.preparation import NewWindow, Preparation

FIRST_SHARD = 1
LARGEST_SHARD = 16
"""Windows in an object: the first one is ready after half a minute of speech, later ones cost fewer
objects and transactions."""

LARGEST_SHARD_BYTES = 16 * 1024**2


@dataclass
class ShardWriter:
    """Writes complete FLAC streams one after another into objects, then hands over their windows.

    An object is complete in storage before `on_shard` inserts the rows that point into it. Names
    hold the attempt, so that one who lost the job cannot overwrite an object of its heir.
    """

    storage: Storage
    preparation: Preparation
    is_split: bool
    on_shard: Callable[[Sequence[NewWindow]], None]
    _streams: list[bytes] = field(default_factory=list)
    _windows: list[NewWindow] = field(default_factory=list)
    _num_shards: int = 0

    def add(self, window: PlannedWindow, samples: Samples, *, is_near_end: bool = False) -> None:
        """Take the next window; writes a shard whenever one is full.

        Args:
            is_near_end: Few windows follow, at once: `take_rest` writes them all.
        """
        stream = encode_flac(samples)
        self._windows.append(
            NewWindow(
                index=window.index,
                channel=window.channel if self.is_split else None,
                start_sample=window.start_sample,
                num_samples=window.num_samples,
                object_key=self._key,
                byte_offset=self._num_bytes,
                num_bytes=len(stream),
            )
        )
        self._streams.append(stream)
        limit = min(LARGEST_SHARD, FIRST_SHARD << min(self._num_shards, 16))
        if is_near_end:
            limit = LARGEST_SHARD
        if len(self._streams) >= limit or self._num_bytes >= LARGEST_SHARD_BYTES:
            self.on_shard(self.take_rest())

    def take_rest(self) -> list[NewWindow]:
        """Write what was added since the last shard and return its windows."""
        windows, streams = self._windows, self._streams
        if windows:
            self.storage.put(self._key, b"".join(streams), content_type="audio/flac")
            self._windows, self._streams = [], []
            self._num_shards += 1
        return windows

    @property
    def _key(self) -> str:
        prefix = windows_prefix(self.preparation.job_id)
        return f"{prefix}{self.preparation.attempt}-{self._num_shards}.flac"

    @property
    def _num_bytes(self) -> int:
        return sum(len(stream) for stream in self._streams)
