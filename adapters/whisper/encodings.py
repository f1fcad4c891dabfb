"""What the encoder made of windows, remembered for a while by their sound."""

from collections import OrderedDict
from collections.abc import Sequence

import torch

from adapters.base import Window
from adapters.whisper.features import LogMel
from adapters.whisper.network import Network
from adapters.whisper.sound import fingerprint

_REMEMBERED_WINDOWS = 64
"""Outputs kept between `detect_language` and `transcribe`: 3 MB each for base."""


class Encodings:
    """Encodes windows, each sound once."""

    def __init__(self, network: Network, log_mel: LogMel) -> None:
        self._network = network
        self._log_mel = log_mel
        self._encoded: OrderedDict[bytes, torch.Tensor] = OrderedDict()

    def encode(self, windows: Sequence[Window]) -> list[torch.Tensor]:
        """Return the windows' encoder outputs, remembered by their sound."""
        marks = [fingerprint(window.samples) for window in windows]
        new = {
            mark: window.samples
            for mark, window in zip(marks, windows, strict=True)
            if mark not in self._encoded
        }
        outputs = self._network.encode([self._log_mel(samples) for samples in new.values()])
        found = {**self._encoded, **dict(zip(new, outputs, strict=True))}
        for mark in marks:
            self._encoded[mark] = found[mark]
            self._encoded.move_to_end(mark)
        while len(self._encoded) > max(_REMEMBERED_WINDOWS, len(marks)):
            self._encoded.popitem(last=False)
        return [found[mark] for mark in marks]
