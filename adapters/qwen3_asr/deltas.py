"""Text of windows while it is decoded. No torch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adapters.qwen3_asr.answers import AnswerStream
from adapters.qwen3_asr.loops import LoopWatch
from adapters.streaming.base import DeltaSink

if TYPE_CHECKING:
    from adapters.qwen3_asr.runtime import Qwen3Runtime


class WindowDeltas:
    """Turns tokens of many windows into pieces of their transcripts."""

    def __init__(self, runtime: "Qwen3Runtime", num_windows: int, sink: DeltaSink) -> None:
        self._decode = runtime.decode_text
        self._sink = sink
        self._watches = [LoopWatch() for _ in range(num_windows)]
        self._tokens: list[list[int]] = [[] for _ in range(num_windows)]
        self._streams = [AnswerStream(runtime.control_tokens) for _ in range(num_windows)]

    def __call__(self, index: int, token: int) -> None:
        """Take the next token of a window."""
        watch, tokens = self._watches[index], self._tokens[index]
        tokens.append(token)
        watch.take(token)
        if not watch.is_looping:  # else the window will be read again
            settled = tokens[: len(tokens) - watch.num_open]
            self._send(index, self._streams[index].update(self._decode(settled)))

    def finish(self, texts: Sequence[str]) -> None:
        """Send what is missing of the windows' final texts."""
        for index, (stream, text) in enumerate(zip(self._streams, texts, strict=True)):
            if text.startswith(stream.sent):
                self._send(index, text[len(stream.sent) :])

    def _send(self, index: int, delta: str) -> None:
        if delta:
            self._sink(index, delta)


def read_before_loop(runtime: "Qwen3Runtime", tokens: Sequence[int]) -> str:
    """Return what a listener gets to read of an answer until it goes astray."""
    pieces: list[str] = []
    deltas = WindowDeltas(runtime, 1, lambda _index, delta: pieces.append(delta))
    for token in tokens:
        deltas(0, token)
    return "".join(pieces)
