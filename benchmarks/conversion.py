# ruff: noqa: SLF001 - looks behind the adapter on purpose: one pass, without the ladder
"""Proof of the conversion: the folder says token for token what CTranslate2 says.

    python -m benchmarks.conversion SPEECH_FOLDER CHECKPOINT_FOLDER CTRANSLATE2_FOLDER

Both get the same features and the same prefix and decode greedily in float32, with timestamps.
"""

import argparse
from pathlib import Path

import ctranslate2  # type: ignore[import-untyped]
import numpy as np
import torch

from adapters.base import LoadOptions, Window
from adapters.whisper.decoding import DecodeRow
from adapters.whisper.features import LogMel, Padding
from adapters.whisper.runtime import WhisperRuntime
from benchmarks.recordings import cut, read_manifest
from core.options import TaskKind


def ours(whisper: WhisperRuntime, window: Window) -> tuple[tuple[int, ...], np.ndarray, list[int]]:
    """Return our tokens, the features and the prefix they were decoded with."""
    log_mel = LogMel(whisper._network.num_bins, whisper._network.device, Padding.SILENCE)
    features = log_mel(window.samples)
    prefix = whisper._vocabulary.prefix(window.language, TaskKind.TRANSCRIBE, with_timestamps=True)
    with torch.inference_mode():
        [encoded] = whisper._network.encode([features])
        row = DecodeRow(
            encoded=encoded,
            prefix=prefix,
            start_index=0,
            with_timestamps=True,
            temperature=0.0,
            seed=0,
        )
        [answer] = whisper._ladder.decoder.decode([row])
    return answer.tokens, features.numpy(), list(prefix)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("ctranslate2", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="only so many recordings")
    args = parser.parse_args()

    options = LoadOptions(folder=args.checkpoint, dtype="float32", num_threads=1)
    whisper = WhisperRuntime.from_options(options)
    source = ctranslate2.models.Whisper(
        str(args.ctranslate2), device="cpu", compute_type="float32", intra_threads=1
    )
    equal = total = 0
    recordings = read_manifest(args.speech)
    for recording in recordings[: args.limit or len(recordings)]:
        for window in cut(recording.path, args.checkpoint, language=recording.language):
            tokens, features, prefix = ours(whisper, window)
            [theirs] = source.generate(
                ctranslate2.StorageView.from_array(features[None]), [prefix], beam_size=1
            )
            total += 1
            equal += list(tokens) == theirs.sequences_ids[0]
            if list(tokens) != theirs.sequences_ids[0]:
                print(f"{recording.name}: {whisper._vocabulary.decode(tokens)}")
                print(f"  {whisper._vocabulary.decode(theirs.sequences_ids[0])}")
    print(f"{equal} of {total} windows equal, token for token")


if __name__ == "__main__":
    main()
