"""One live session on its worker: entries in, turns for the model, events out."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from adapters.base import Samples
from core.ids import new_id
from core.live import TICKS_HZ, Entry, LiveConfig, Sent, Told
from core.transcript import SAMPLE_RATE_HZ
from workers.live.denoise import NoiseFilter
from workers.live.sound import SoundReader
from workers.live.turns import Begun, ClientTurns, DetectedTurns, Ended, TurnEvent, TurnTaker
from workers.live.voice import Voice

TICKS_PER_SAMPLE = TICKS_HZ // SAMPLE_RATE_HZ
COMMIT_EMPTY = "input_audio_buffer_commit_empty"
"""OpenAI's code for a commit of nothing."""


@dataclass(slots=True)
class Item:
    """A turn on its way through the model.

    The listener's thread appends to `queue` and sets the flags, under the session's lock; the
    model's thread takes from it and owns the rest of the item's state elsewhere.

    Attributes:
        num_samples: Audio so far, at 16 kHz.
        is_ended: Whether all its audio is in the queue or taken.
        is_dropped: Whether nobody wants its text any more.
    """

    id: str
    config: LiveConfig
    queue: list[Samples] = field(default_factory=list)
    num_samples: int = 0
    is_ended: bool = False
    is_dropped: bool = False


class LiveSession:
    """What a worker keeps of a session.

    Attributes:
        model: The checkpoint; it does not change.
        last_entry: The id of the last entry of the audio stream that was taken.
        is_over: Whether the client ended it or an error did.
    """

    def __init__(
        self, session_id: str, model: str, voice: Voice, *, wake: Callable[[], None]
    ) -> None:
        self.id = session_id
        self.model = model
        self.voice = voice
        self.last_entry: bytes | str = "0-0"
        self.is_over = False
        self._wake = wake
        self._lock = threading.Lock()
        self._items: list[Item] = []  # those the model has not finished
        self._open: Item | None = None
        self._config = LiveConfig(model=model)
        self._reader = SoundReader(self._config.rate_hz, self._config.encoding)
        self._filter: NoiseFilter | None = None
        self._turns: TurnTaker = ClientTurns(0)
        self._num_samples = 0
        self._read_ticks = 0
        self._num_entries = 0
        self._told = (0, 0)
        self._is_ready = False

    def take(self, entry: Entry) -> None:
        """Take the next entry of the audio stream."""
        self._num_entries += 1
        match entry.kind:
            case Sent.CONFIG:
                self._configure(LiveConfig.from_json(entry.data))
            case Sent.AUDIO:
                self._read_ticks += self._config.count_ticks(len(entry.data))
                self._hear(self._clean(self._reader.read(entry.data)))
            case Sent.COMMIT:
                self._commit(entry.event_id)
            case Sent.CLEAR:
                self._clear()
            case Sent.END:
                self.is_over = True

    def items(self) -> list[Item]:
        """Return the turns that the model has not finished, the oldest first."""
        with self._lock:
            return [item for item in self._items if not item.is_dropped]

    def take_audio(self, item: Item) -> tuple[list[Samples], bool]:
        """Return the audio that waits for the model, and whether it is the turn's last."""
        with self._lock:
            queue, item.queue = item.queue, []
            return queue, item.is_ended

    def finish(self, item: Item) -> None:
        """Forget a turn: its text is complete, or never will be."""
        with self._lock:
            item.is_dropped = True
            self._items = [other for other in self._items if other is not item]

    def end(self, code: str, message: str) -> None:
        """End the session with an error."""
        self.is_over = True
        self.voice.tell(Told.ENDED, code=code, message=message)

    def tell_ready(self) -> None:
        """Tell once that the model is there to hear."""
        if not self._is_ready:
            self._is_ready = True
            self.voice.tell(Told.READY)

    def tell_heard(self, buffered_ms: int) -> None:
        """Tell how far the model has heard, so that the client's side knows what waits.

        Args:
            buffered_ms: Audio that adapters hold and have not heard.
        """
        with self._lock:
            queued = sum(len(part) for item in self._items for part in item.queue)
        heard_ms = self._read_ticks * 1000 // TICKS_HZ - queued * 1000 // SAMPLE_RATE_HZ
        told = (max(heard_ms - buffered_ms, self._told[0]), self._num_entries)
        if told != self._told:
            self._told = told
            self.voice.tell(Told.HEARD, audio_ms=told[0], num_entries=told[1])

    def _configure(self, config: LiveConfig) -> None:
        """Go on with other settings; they hold from here on."""
        old = self._config
        if (config.rate_hz, config.encoding) != (old.rate_hz, old.encoding):
            self._hear(self._clean(self._reader.flush()))
            self._reader = SoundReader(config.rate_hz, config.encoding)
        if config.noise_reduction != old.noise_reduction:
            self._hear(self._drain_filter())
            reduction = config.noise_reduction
            self._filter = None if reduction is None else NoiseFilter(reduction)
        if config.turns != old.turns or not self._num_samples:
            self._follow(self._turns.end())
            self._turns = self._new_turns(config)
        self._config = config

    def _hear(self, samples: Samples) -> None:
        self._num_samples += len(samples)
        self._follow(self._turns.feed(samples))

    def _clean(self, samples: Samples) -> Samples:
        return samples if self._filter is None else self._filter.read(samples)

    def _drain_filter(self) -> Samples:
        empty = np.zeros(0, np.float32)
        return empty if self._filter is None else self._filter.flush()

    def _commit(self, event_id: str | None) -> None:
        self._hear(self._clean(self._reader.flush()))
        self._hear(self._drain_filter())
        events = list(self._turns.end())
        if not events:
            self.voice.tell(
                Told.REFUSED,
                code=COMMIT_EMPTY,
                message="The audio buffer holds nothing to commit.",
                event_id=event_id,
            )
        self._follow(events, by_client=True)

    def _clear(self) -> None:
        """Forget the audio that no turn has taken, and the open turn."""
        self._reader.flush()
        self._drain_filter()
        if self._open is not None:
            self.finish(self._open)
            self._open = None
        self._turns = self._new_turns(self._config)
        self.voice.tell(Told.CLEARED)

    def _new_turns(self, config: LiveConfig) -> TurnTaker:
        if config.turns is None:
            return ClientTurns(self._num_samples)
        return DetectedTurns(config.turns, self._num_samples)

    def _follow(self, events: Iterable[TurnEvent], *, by_client: bool = False) -> None:
        """Do what turns need; of those that the client ends no end of speech is told."""
        for event in events:
            if isinstance(event, Begun):
                self._begin(event.at_ms)
            elif isinstance(event, Ended):
                self._end_turn(event.at_ms, by_client=by_client)
            else:
                self._append(event.samples)

    def _begin(self, at_ms: int) -> None:
        item = self._open = Item(f"item_{new_id().hex}", self._config)
        with self._lock:
            self._items.append(item)
        if self._config.turns is not None:
            self.voice.tell(Told.SPEECH_STARTED, item_id=item.id, audio_start_ms=at_ms)

    def _append(self, samples: Samples) -> None:
        item = self._open_item()
        with self._lock:
            if not item.is_dropped:  # else it has failed already
                item.queue.append(samples)
                item.num_samples += len(samples)
        self._wake()

    def _end_turn(self, at_ms: int, *, by_client: bool) -> None:
        item, self._open = self._open_item(), None
        if self._config.turns is not None and not by_client:
            self.voice.tell(Told.SPEECH_STOPPED, item_id=item.id, audio_end_ms=at_ms)
        self.voice.tell(Told.COMMITTED, item_id=item.id)
        with self._lock:
            item.is_ended = True
        self._wake()

    def _open_item(self) -> Item:
        if self._open is None:
            raise LookupError("no turn is open")
        return self._open
