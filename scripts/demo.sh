#!/bin/sh
# Transcribes samples/ through the embedded service and prints the transcripts; `make demo` calls it.
set -eu
cd "$(dirname "$0")/.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

status=0
.venv/bin/scriptorium transcribe samples --format srt --output "$out" || status=$?
for transcript in "$out"/*.srt; do
    [ -e "$transcript" ] || continue
    printf '\n== %s ==\n' "$(basename "$transcript" .srt)"
    cat "$transcript"
done
exit "$status"
