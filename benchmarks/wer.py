"""Word error rate a language, beside what a peer wrote for the same files.

    python -m benchmarks.wer SPEECH_FOLDER CHECKPOINT_FOLDER [--dtype int8] [--peer PEER.tsv]

The speech folder holds `manifest.tsv`; the peer's file has columns file, errors, words, text and is
scored again with the same normaliser.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

from benchmarks.recordings import Recording, cut, join_texts, load, read_manifest, transcribe
from benchmarks.scoring import count_errors

Texts = dict[str, str]


def transcribe_all(recordings: list[Recording], args: argparse.Namespace) -> Texts:
    adapter = load(args.checkpoint, dtype=args.dtype, num_threads=args.threads)
    windows, owners = [], []
    for recording in recordings:
        part = cut(recording.path, args.checkpoint, language=recording.language)
        windows += part
        owners += [recording.name] * len(part)
    pieces: dict[str, list[str]] = defaultdict(list)
    texts = transcribe(adapter, windows, batch_size=args.batch)
    for owner, text in zip(owners, texts, strict=True):
        pieces[owner].append(text)
    return {owner: join_texts(part) for owner, part in pieces.items()}


def read_peer(path: Path) -> Texts:
    with path.open(encoding="utf-8", newline="") as file:
        return {row[0]: row[3] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}


def report(recordings: list[Recording], ours: Texts, peer: Texts) -> None:
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for recording in recordings:
        name, language = recording.name, recording.language
        errors, words = count_errors(recording.text, ours.get(name, ""), language)
        theirs, _ = count_errors(recording.text, peer.get(name, ""), language)
        for group in (language, "all"):
            found = (errors, theirs, words)
            totals[group] = [a + b for a, b in zip(totals[group], found, strict=True)]
        if peer and abs(errors - theirs) > 2:
            print(f"{name}: {errors} against {theirs} of {words}\n  {ours.get(name)}")
            print(f"  {peer.get(name)}")
    print(f"{'language':10}{'words':>8}{'ours %':>10}{'peer %':>10}")
    for group, (errors, theirs, words) in totals.items():
        against = f"{100 * theirs / words:10.2f}" if peer else ""
        print(f"{group:10}{words:8}{100 * errors / words:10.2f}{against}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--languages", nargs="+")
    parser.add_argument("--texts", type=Path, help="write file and text here")
    args = parser.parse_args()

    everything = read_manifest(args.speech)
    recordings = [r for r in everything if not args.languages or r.language in args.languages]
    texts = transcribe_all(recordings, args)
    if args.texts:
        lines = [f"{name}\t{text}\n" for name, text in texts.items()]
        args.texts.write_text("".join(lines), encoding="utf-8")
    report(recordings, texts, read_peer(args.peer) if args.peer else {})


if __name__ == "__main__":
    main()
