"""How text leaves an adapter before its window is done. No torch."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from adapters.base import Window
from core.transcript import Hypothesis


class DeltaSink(Protocol):
    """Takes pieces of transcript as they are decoded."""

    def __call__(self, index: int, delta: str) -> None:
        """Take the next piece of `windows[index]`'s text.

        Called in the adapter's thread between two decoding steps: it must be quick and not raise.
        Pieces of one window arrive in order, those of different windows interleave; none is
        empty, none is taken back, and joined they are that window's `Hypothesis.text`.
        """
        ...


@runtime_checkable
class DeltaTranscriber(Protocol):
    """An adapter that can also say what it hears while it decodes.

    `isinstance(adapter, DeltaTranscriber)` tells; others give their text when a window is done.
    """

    def transcribe_stream(self, windows: Sequence[Window], sink: DeltaSink) -> list[Hypothesis]:
        """Do what `transcribe` does, and call `sink` on the way.

        The hypotheses equal `transcribe`'s. When it raises, what `sink` got for the windows is
        void: the caller starts their text again.
        """
        ...
