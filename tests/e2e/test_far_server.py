"""`scriptorium transcribe --server` where uploads go past the API, straight to the storage."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from lifecycle.uploads import ONE_PUT_BYTES
from tests.e2e.conftest import KENNEDY
from tests.support.stack import Stack, run_command

RATE_HZ = 192_000
CHANNELS = 8


def write_large(path: Path) -> None:
    """Write a sentence in so many channels and bits that it takes several parts."""
    samples, rate_hz = soundfile.read(KENNEDY, dtype="float64")
    samples = soxr.resample(samples, rate_hz, RATE_HZ)
    soundfile.write(path, np.tile(samples[:, None], CHANNELS), RATE_HZ, subtype="DOUBLE")
    assert path.stat().st_size > ONE_PUT_BYTES


@pytest.mark.parametrize("stack", ["services"], indirect=True)
def test_small_and_large_recordings_go_to_s3_and_come_back_as_text(
    stack: Stack, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    write_large(folder / "large.wav")
    (folder / "small é.flac").write_bytes(KENNEDY.read_bytes())

    done = run_command(
        "transcribe", folder, "--server", stack.url, "--key", stack.key, "--language", "en",
        "--data", tmp_path / "client", env=stack.env, timeout_s=480,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    for name in ("large", "small é"):
        assert "what your country can do for you" in (folder / f"{name}.txt").read_text()
    jobs = stack.client.get("/v1/jobs", params={"limit": 100}).json()["data"]
    assert {"large.wav", "small é.flac"} <= {j["filename"] for j in jobs if j["batch_id"]}
