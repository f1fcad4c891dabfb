"""An aligner that costs nothing until the first word time is asked for. No torch until then."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from adapters.aligner.base import Alignment, AlignmentRequest, WordAligner
from adapters.base import LoadOptions


class LazyAligner:
    """Loads a `ForcedAligner` at the first `align`."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        self._aligner: WordAligner | None = None

    @classmethod
    def beside(cls, options: LoadOptions, folder: str) -> Self:
        """Return the aligner in `folder`, to be loaded as the model of `options` is."""
        return cls(replace(options, folder=Path(folder), extra={}))

    def align(self, requests: Sequence[AlignmentRequest]) -> list[Alignment]:
        """See `adapters.aligner.base.WordAligner`."""
        if self._aligner is None:
            from adapters.aligner.forced import ForcedAligner  # noqa: PLC0415 - imports torch

            self._aligner = ForcedAligner.load(self._options)
        return self._aligner.align(requests)

    def close(self) -> None:
        """Free the device's memory; a later `align` loads again."""
        if self._aligner is not None:
            self._aligner.close()
            self._aligner = None
