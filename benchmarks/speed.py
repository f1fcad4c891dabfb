"""Speed and word error rate beside faster-whisper: same weights, same recording, interleaved runs.

    python -m benchmarks.speed SPEECH_FOLDER CHECKPOINT_FOLDER CTRANSLATE2_FOLDER

Joins the English recordings of the speech folder's `manifest.tsv` into one of about five minutes.
Every round runs every system once, so that a busy machine slows all of them. CPU seconds are those
of the whole process: on a shared machine they are the steadier measure.
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from benchmarks.recordings import cut, join_texts, load, read_manifest, transcribe
from benchmarks.scoring import count_errors
from core.transcript import SAMPLE_RATE_HZ

System = Callable[[Path], str]


def join_recordings(folder: Path, into: Path, *, seconds: float) -> tuple[float, str]:
    """Write English recordings one after another, half a second apart; return length and text."""
    pause = np.zeros(SAMPLE_RATE_HZ // 2, np.float32)
    pieces: list[np.ndarray] = []
    texts = []
    length = 0.0
    for recording in read_manifest(folder):
        if recording.language != "en" or length >= seconds:
            continue
        samples, _rate = soundfile.read(recording.path, dtype="float32")
        pieces += [samples, pause]
        texts.append(recording.text)
        length += (len(samples) + len(pause)) / SAMPLE_RATE_HZ
    soundfile.write(into, np.concatenate(pieces), SAMPLE_RATE_HZ)
    return length, " ".join(texts)


def ours(checkpoint: Path, *, dtype: str, batch_size: int, threads: int) -> System:
    adapter = load(checkpoint, dtype=dtype, num_threads=threads)

    def run(path: Path) -> str:
        windows = cut(path, checkpoint, language="en")
        return join_texts(transcribe(adapter, windows, batch_size=batch_size))

    return run


def theirs(folder: Path, *, dtype: str, batch_size: int, threads: int) -> System:
    # Not a dependency: only this comparison needs it.
    from faster_whisper import BatchedInferencePipeline, WhisperModel  # noqa: PLC0415

    model = WhisperModel(str(folder), device="cpu", compute_type=dtype, cpu_threads=threads)
    if batch_size == 1:

        def run_alone(path: Path) -> str:
            segments, _info = model.transcribe(str(path), language="en", beam_size=1)
            return " ".join(segment.text.strip() for segment in segments)

        return run_alone
    pipeline = BatchedInferencePipeline(model)

    def run(path: Path) -> str:
        segments, _info = pipeline.transcribe(
            str(path), language="en", beam_size=1, batch_size=batch_size
        )
        return " ".join(segment.text.strip() for segment in segments)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("ctranslate2", type=Path, help="model.bin, config.json, tokenizer.json …")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()

    make = {"batch_size": args.batch, "threads": args.threads}
    systems = {
        "scriptorium int8": ours(args.checkpoint, dtype="int8", **make),
        "scriptorium float32": ours(args.checkpoint, dtype="float32", **make),
        f"faster-whisper int8 batched {args.batch}": theirs(args.ctranslate2, dtype="int8", **make),
        "faster-whisper int8 batched 16": theirs(
            args.ctranslate2, dtype="int8", batch_size=16, threads=args.threads
        ),
        "faster-whisper float32 sequential": theirs(
            args.ctranslate2, dtype="float32", batch_size=1, threads=args.threads
        ),
    }
    wall: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "joined.wav"
        length, reference = join_recordings(args.speech, path, seconds=args.seconds)
        for _round in range(args.rounds):
            for name, run in systems.items():
                started, busy = time.perf_counter(), time.process_time()
                texts[name] = run(path)
                cpu[name].append(time.process_time() - busy)
                wall[name].append(time.perf_counter() - started)
                print(f"{name}: {wall[name][-1]:.1f} s, {cpu[name][-1]:.1f} CPU s", flush=True)
    print(f"{length:.0f} s of audio, medians of {args.rounds}")
    print(f"{'':36}{'audio-s/s':>10}{'per CPU s':>10}{'WER %':>8}")
    for name, text in texts.items():
        errors, words = count_errors(reference, text, "en")
        speeds = length / statistics.median(wall[name]), length / statistics.median(cpu[name])
        print(f"{name:36}{speeds[0]:10.1f}{speeds[1]:10.1f}{100 * errors / words:8.2f}")


if __name__ == "__main__":
    main()
