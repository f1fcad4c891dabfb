"""Damaged media end in samples or in a media error: never in a hang or another exception."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import MediaError
from tests.integration.audio.conftest import Decode
from tests.integration.audio.media_files import DATA, RATE_HZ

NAMES = [
    "adts.aac", "aiff_s16be.aiff", "alac.m4a", "amr_nb.amr", "au_mulaw.au", "mka_flac.mka",
    "mkv_audio_starts_late.mkv", "mov_quicktime.mov", "mp2.mp2", "mp3_art_mislabelled.mp3",
    "mp4_video_with_audio.mp4", "mpegts.ts", "noextension", "rf64.wav", "voice_note.opus",
    "vorbis.ogg", "w64.w64", "wav_adpcm_ima.wav", "webm_opus_no_duration.webm",
]  # fmt: skip


def damage(data: bytes, kind: str, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    if kind == "cut":
        return data[: int(len(data) * rng.uniform(0.01, 0.99))]
    if kind == "head":
        start, end = 0, min(len(data), 512)
    else:
        start, end = 0, len(data)
    damaged = bytearray(data)
    for position in rng.integers(start, end, 3 if kind == "head" else max(3, len(data) // 2000)):
        damaged[position] ^= 1 << rng.integers(8)
    return bytes(damaged)


@pytest.mark.parametrize("kind", ["cut", "head", "flipped"])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_gives_samples_or_a_media_error(
    name: str, kind: str, decode: Decode, tmp_path: Path
) -> None:
    for seed in range(2):
        path = tmp_path / f"{seed}"
        path.write_bytes(damage((DATA / name).read_bytes(), kind, seed))
        try:
            samples, _, _ = decode(path, max_media_s=120, stall_s=30)
        except MediaError:
            continue
        assert 0 < samples.shape[1] <= 120 * RATE_HZ
        assert np.abs(samples).max() <= 1.0
