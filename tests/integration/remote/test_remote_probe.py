"""What a dry run finds out about a `media_url` from its beginning and its end."""

import io

import av
import numpy as np
import pytest

from api import remote_probe
from api.remote_probe import probe_url
from core.audio.media import DecodeLimits
from core.errors import (
    MediaEmpty,
    MediaTooLarge,
    MediaUndecodable,
    MediaUnreachable,
    SourceUnavailable,
)
from tests.integration.batches.conftest import make_stack
from tests.integration.remote.source import serving
from tests.support.pipeline import noise, wav

HEAD_BYTES, TAIL_BYTES = 32 << 10, 64 << 10
LENGTH_S = 60.0
RATE_HZ = 16_000


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(remote_probe, "HEAD_BYTES", HEAD_BYTES)
    monkeypatch.setattr(remote_probe, "TAIL_BYTES", TAIL_BYTES)


def encode(container: str, codec: str) -> bytes:
    """Return a minute of noise, larger than what is looked at."""
    file = io.BytesIO()
    samples = (np.random.default_rng(1).standard_normal(int(LENGTH_S * RATE_HZ)) * 8000).clip(
        -32768, 32767
    )
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=RATE_HZ, layout="mono")
        resampler = av.AudioResampler(
            stream.format.name, "mono", RATE_HZ, stream.frame_size or 4096
        )
        frame = av.AudioFrame.from_ndarray(samples.astype("<i2").reshape(1, -1), "s16", "mono")
        frame.sample_rate = RATE_HZ
        for piece in (*resampler.resample(frame), *resampler.resample(None)):
            output.mux(stream.encode(piece))
        output.mux(stream.encode(None))
    return file.getvalue()


def look(source, *, max_bytes=1 << 30, allow_private=True, headers=None):
    limits = DecodeLimits(max_media_s=86_400, timeout_s=20, stall_s=20, memory_bytes=2 << 30)
    return probe_url(
        source.url,
        headers or {},
        limits=limits,
        max_bytes=max_bytes,
        allow_private=allow_private,
    )


@pytest.mark.parametrize(
    ("container", "codec", "found"),
    [
        ("mp3", "libmp3lame", "mp3"),
        ("ipod", "aac", "aac"),  # with its index at the end
        ("flac", "flac", "flac"),
        ("matroska", "aac", "aac"),
        ("wav", "pcm_s16le", "pcm_s16le"),
    ],
)
def test_a_part_of_a_long_file_tells_codec_and_length(source, container, codec, found):
    source.body = encode(container, codec)
    assert len(source.body) > HEAD_BYTES + TAIL_BYTES
    info = look(source, headers={"X-Token": "t"})
    assert info.codec == found
    assert info.claimed_ms / 1000 == pytest.approx(LENGTH_S, rel=0.01)
    asked = [headers["range"] for _path, headers in source.requests]
    assert asked == [f"bytes=0-{HEAD_BYTES - 1}", f"bytes={len(source.body) - TAIL_BYTES}-"]
    assert {headers["x-token"] for _path, headers in source.requests} == {"t"}


@pytest.mark.parametrize("declared", [True, False])
def test_a_server_without_ranges_sends_no_more_than_the_beginning(source, declared):
    source.body, source.ranges, source.declared = wav(noise(60.0)), False, declared
    info = look(source)
    assert info.codec == "pcm_s16le"
    assert len(source.requests) == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"status": 404}, MediaUnreachable),
        ({"status": 503}, SourceUnavailable),
        ({"content_type": "text/html"}, MediaUnreachable),
        ({"body": b""}, MediaEmpty),
        ({"body": b"no audio" * 100}, MediaUndecodable),
        ({"body": bytes(HEAD_BYTES + 100)}, MediaUndecodable),  # in two pieces, and whole
    ],
)
def test_what_its_job_would_fail_with_is_told(source, change, error):
    for name, value in change.items():
        setattr(source, name, value)
    with pytest.raises(error):
        look(source)


def test_what_the_hole_may_hide_is_not_called_unusable(source):
    source.body = bytes(3 * TAIL_BYTES)
    assert look(source) is None
    source.body, source.encoding = b"packed", "gzip"
    assert look(source) is None


def test_size_address_and_time_have_limits(source, monkeypatch):
    source.body = wav(noise(2.0))
    with pytest.raises(MediaTooLarge):
        look(source, max_bytes=1000)
    with pytest.raises(MediaUnreachable):
        look(source, allow_private=False)
    monkeypatch.setattr(remote_probe, "READ_S", -1.0)
    with pytest.raises(SourceUnavailable):
        look(source)


def test_a_dry_run_looks_at_remote_media_and_uploads(sessions, tmp_path, redis_url, source):
    source.body = wav(noise(3.0))
    with (
        serving() as away,
        make_stack(sessions, tmp_path, redis_url, webhook_allow_private=True) as stack,
    ):
        away.status = 404
        body = {"filename": "a.wav", "size_bytes": len(source.body)}
        upload = stack.client.post("/v1/uploads", json=body).json()
        path = upload["url"].partition("/v1/")[2]
        assert stack.client.put(f"/v1/{path}", content=source.body).status_code == 204
        report = stack.post(
            [
                {"custom_id": "a", "media_url": source.url},
                {"custom_id": "b", "media_url": away.url},
                {"custom_id": "c", "upload_id": upload["id"]},
            ],
            dry_run="true",
        ).json()
    assert (report["usable"], report["unusable"], report["probed"]) == (2, 1, 2)
    assert [(p["index"], p["code"]) for p in report["problems"]] == [(1, "media_unreachable")]
    assert report["codecs"] == {"pcm_s16le": 2}
    assert report["audio_s"] == pytest.approx(6.0, abs=0.1)
