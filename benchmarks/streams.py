"""What steps of streams cost: many sessions in one batch beside one, and hours beside minutes.

    python -m benchmarks.streams CHECKPOINT CLIP… [--rounds 5] [--sessions 8] [--minutes 10]

Clips are files of speech; each session hears them in another order.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapters.base import Adapter, LoadOptions, Samples
from adapters.loading import load_adapter
from adapters.streaming import StreamCounters, StreamingEngine, start_streaming
from core.audio.decode import open_media
from core.audio.media import DecodeLimits
from core.options import Channels
from core.transcript import SAMPLE_RATE_HZ

STEP = 2 * SAMPLE_RATE_HZ


def read_clip(path: Path) -> Samples:
    """Return all samples of a file."""
    with open_media(path, limits=DecodeLimits(), channels=Channels.MIX) as stream:
        samples: Samples = np.concatenate(list(stream), axis=1)[0]
    return samples


def compose(clips: Sequence[Samples], *, seconds: int, seed: int) -> Samples:
    """Return clips in random order, as often as it takes."""
    random = np.random.default_rng(seed)
    parts: list[Samples] = []
    while sum(map(len, parts)) < seconds * SAMPLE_RATE_HZ:
        parts += [clips[number] for number in random.permutation(len(clips))]
    return np.concatenate(parts)[: seconds * SAMPLE_RATE_HZ]


def time_steps(adapter: Adapter, streams: Sequence[Samples]) -> tuple[list[float], float]:
    """Return CPU seconds of steps in which all streams were heard, one session each, and of all."""
    engine = start_streaming(adapter)
    sessions = [engine.open() for _ in streams]
    costs, total = [], 0.0
    for at in range(0, len(streams[0]), STEP):
        for session, samples in zip(sessions, streams, strict=True):
            session.push(samples[at : at + STEP])
        is_busy = True
        while is_busy:
            started = time.process_time()
            updates = engine.step(sessions)
            cost = time.process_time() - started
            total += cost
            if None not in updates:
                costs.append(cost)
            is_busy = any(updates)
    return costs, total


def compare_sessions(
    adapter: Adapter, clips: Sequence[Samples], *, num_sessions: int, rounds: int
) -> None:
    """Print what a step of many sessions of different audio costs in terms of one session's."""
    streams = [compose(clips, seconds=40, seed=seed) for seed in range(num_sessions)]
    time_steps(adapter, streams)  # warm
    ratios, totals = [], []
    for _ in range(rounds):
        costs, total = time_steps(adapter, streams)
        alone = [time_steps(adapter, [one]) for one in streams]
        together = statistics.mean(costs)
        one = statistics.mean(cost for costs, _ in alone for cost in costs)
        ratios.append(together / one)
        totals.append(total / statistics.mean(total for _, total in alone))
        print(
            f"a step of {num_sessions} {1000 * together:4.0f} ms, of one {1000 * one:4.0f} ms:"
            f" {ratios[-1]:.2f}; whole streams {totals[-1]:.2f}",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.2f}; whole streams {statistics.median(totals):.2f}")


def follow_long_stream(adapter: Adapter, clips: Sequence[Samples], *, minutes: int) -> None:
    """Print a line a minute of one session's stream."""
    engine: StreamingEngine[Any] = start_streaming(adapter)
    session = engine.open()
    samples = compose(clips, seconds=60 * minutes, seed=0)
    print("minute  CPU s  slowest step  encoder frames  decoder tokens  resident MB")
    for minute in range(minutes):
        before, costs = engine.counters, []
        first = minute * 60 * SAMPLE_RATE_HZ
        for at in range(first, first + 60 * SAMPLE_RATE_HZ, STEP):
            session.push(samples[at : at + STEP])
            started = time.process_time()
            while any(engine.step([session])):
                pass
            costs.append(time.process_time() - started)
        print(describe_minute(minute, costs, before, engine.counters), flush=True)


def describe_minute(
    minute: int, costs: Sequence[float], before: StreamCounters, after: StreamCounters
) -> str:
    """Return a line of the table."""
    frames = after.encoder_frames - before.encoder_frames
    tokens = after.decoder_tokens - before.decoder_tokens
    return (
        f"{minute:6}{sum(costs):7.2f}{max(costs):14.3f}{frames:16}{tokens:16}{resident_mb():13.0f}"
    )


def resident_mb() -> float:
    """Return the memory in use; where the system does not tell, the most there was."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("clips", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    clips = [read_clip(path) for path in args.clips]
    adapter = load_adapter(LoadOptions(folder=args.checkpoint, num_threads=args.threads))
    if args.rounds:
        compare_sessions(adapter, clips, num_sessions=args.sessions, rounds=args.rounds)
    if args.minutes:
        follow_long_stream(adapter, clips, minutes=args.minutes)


if __name__ == "__main__":
    main()
