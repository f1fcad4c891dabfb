"""Every file that real users send, and what comes of it."""

import csv
import socket
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from core.audio.media import DecodeLimits
from core.audio.plan import WindowIterator
from core.audio.probe import probe
from core.audio.windows import WindowRules
from core.errors import MediaError, MediaUndecodable
from core.options import Channels
from tests.integration.audio.conftest import Blocks, Decode
from tests.integration.audio.media_files import (
    DATA,
    RATE_HZ,
    encode,
    make_case,
    sentence_b,
    wav_bytes,
)

with (DATA / "cases.tsv").open() as table:
    CASES = list(csv.DictReader(table, delimiter="\t"))
GOOD = [case for case in CASES if not case["error"]]
WITHOUT_SPEECH = {"beeps_15s.ogg", "music_16s.ogg", "wav_50ms.wav"}
BAD = [case for case in CASES if case["error"]]


def _ids(cases: list[dict[str, str]]) -> list[str]:
    return [f"{case['id']}-{case['file']}" for case in cases]


@pytest.mark.parametrize("case", GOOD, ids=_ids(GOOD))
def test_a_case_decodes_to_its_length_and_is_heard(
    case: dict[str, str], decode: Decode, tmp_path: Path
) -> None:
    path = make_case(case["file"], tmp_path)
    samples, _, _ = decode(path)
    assert samples.shape[1] / RATE_HZ == pytest.approx(
        float(case["duration_s"]), abs=float(case["tolerance_s"])
    )
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() <= 1.0
    windows = list(WindowIterator(Blocks(samples), WindowRules(max_samples=30 * RATE_HZ)))
    assert (windows == []) == (case["file"] in WITHOUT_SPEECH)
    probe(path, DecodeLimits())


@pytest.mark.parametrize("case", BAD, ids=_ids(BAD))
def test_a_bad_case_is_refused_at_the_door_and_by_the_worker(
    case: dict[str, str], decode: Decode, tmp_path: Path
) -> None:
    path = make_case(case["file"], tmp_path)
    for attempt in (lambda: decode(path), lambda: probe(path, DecodeLimits())):
        with pytest.raises(MediaError) as caught:
            attempt()
        assert caught.value.code == case["error"]
        assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("container", "codec", "rate_hz"),
    [
        ("3g2", "aac", 16_000), ("3gp", "libopencore_amrnb", 8_000), ("ac3", "ac3", 48_000),
        ("adts", "aac", 44_100), ("aiff", "adpcm_ima_qt", 16_000), ("aiff", "pcm_s24be", 44_100),
        ("asf", "libmp3lame", 16_000), ("asf", "wmav2", 44_100), ("au", "pcm_alaw", 8_000),
        ("avi", "pcm_s16le", 16_000), ("caf", "alac", 16_000), ("caf", "pcm_mulaw", 8_000),
        ("eac3", "eac3", 48_000), ("flac", "flac", 96_000), ("flv", "nellymoser", 8_000),
        ("ipod", "aac", 22_050), ("ismv", "aac", 16_000), ("latm", "aac", 16_000),
        ("matroska", "ac3", 48_000), ("matroska", "pcm_s16le", 16_000), ("matroska", "tta", 16_000),
        ("mov", "pcm_mulaw", 8_000), ("mp3", "libmp3lame", 8_000), ("mp4", "flac", 16_000),
        ("mp4", "libmp3lame", 16_000), ("mp4", "libopus", 48_000), ("mpeg", "mp2", 48_000),
        ("mpegts", "libopus", 48_000), ("nut", "pcm_s16le", 16_000), ("ogg", "flac", 16_000),
        ("ogg", "libopus", 48_000), ("swf", "libmp3lame", 44_100), ("tta", "tta", 16_000),
        ("voc", "pcm_u8", 16_000), ("w64", "pcm_s24le", 16_000), ("wav", "adpcm_ms", 16_000),
        ("wav", "g722", 16_000), ("wav", "g726", 8_000), ("wav", "libmp3lame", 16_000),
        ("wav", "pcm_alaw", 8_000), ("wav", "pcm_f32le", 192_000), ("webm", "libopus", 48_000),
        ("wv", "wavpack", 16_000),
    ],
)  # fmt: skip
def test_other_containers_and_codecs_decode_as_well(
    container: str, codec: str, rate_hz: int, decode: Decode, tmp_path: Path
) -> None:
    duration_s = encode(tmp_path / "blob", container, codec, rate_hz=rate_hz)
    samples, info, warnings = decode(tmp_path / "blob")
    assert samples.shape[1] / RATE_HZ == pytest.approx(duration_s, abs=0.11)
    assert info.sample_rate_hz == pytest.approx(rate_hz, rel=0.01)  # VOC rounds its rate
    assert warnings == ()
    assert _likeness(samples[0], sentence_b() / 32768) > 0.9


def _likeness(samples: np.ndarray, expected: np.ndarray) -> float:
    """Correlation of envelopes at the best shift: encoders add or drop up to 0.1 s in front."""
    heard, wanted = (
        np.sqrt(np.square(np.pad(x, (0, 64_000))[:64_000].reshape(-1, 160)).mean(axis=1))
        for x in (samples, expected)
    )
    shifts = (np.roll(heard, shift) for shift in range(-11, 12))
    return max(float(np.corrcoef(shifted, wanted)[0, 1]) for shifted in shifts)


@pytest.mark.parametrize("subtype", ["GSM610", "MS_ADPCM", "ULAW", "G721_32"])
def test_telephony_wavs_decode(subtype: str, decode: Decode, tmp_path: Path) -> None:
    format_ = "AU" if subtype == "G721_32" else "WAV"
    sf.write(tmp_path / "blob", sentence_b(), RATE_HZ, format=format_, subtype=subtype)
    samples, _, _ = decode(tmp_path / "blob")
    assert samples.shape[1] / RATE_HZ == pytest.approx(2.99, abs=0.1)


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0xFFFFFFFF])
def test_a_recorder_that_never_wrote_the_sizes_is_read_to_the_end(
    size: int, decode: Decode, tmp_path: Path
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(sentence_b().tobytes(), riff_size=size, data_size=size))
    assert decode(path)[0].shape[1] == len(sentence_b())


def test_a_recorder_that_counts_from_zero_again_after_4_gib_is_read_to_the_end(
    decode: Decode, tmp_path: Path
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(sentence_b().tobytes(), riff_size=5036, data_size=5000))
    samples, _, warnings = decode(path)
    assert samples.shape[1] == len(sentence_b())
    assert warnings == ("media_damaged",)


def test_a_big_endian_wav_is_heard_or_refused_and_never_noise(
    decode: Decode, tmp_path: Path
) -> None:
    path = tmp_path / "a.wav"
    sf.write(path, sentence_b(), RATE_HZ, subtype="PCM_16", endian="BIG")
    assert path.read_bytes()[:4] == b"RIFX"
    np.testing.assert_array_equal(decode(path)[0][0], sentence_b() / np.float32(32768))
    sf.write(path, sentence_b(), RATE_HZ, subtype="PCM_24", endian="BIG")
    with pytest.raises(MediaUndecodable, match="RIFX"):
        decode(path)


def test_a_rate_that_holds_no_speech_is_refused_before_it_becomes_hours(
    decode: Decode, tmp_path: Path
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(sentence_b().tobytes(), rate_hz=1))  # 13 hours in 96 kB
    for attempt in (lambda: decode(path), lambda: probe(path, DecodeLimits())):
        with pytest.raises(MediaUndecodable, match="no speech"):
            attempt()


def test_sixteen_bit_samples_at_16_khz_come_through_unchanged(decode: Decode) -> None:
    samples, _, _ = decode(DATA / "aiff_s16be.aiff")
    np.testing.assert_array_equal(samples[0], sentence_b() / np.float32(32768))


def test_a_late_track_starts_late_in_the_samples(decode: Decode) -> None:
    samples, info, _ = decode(DATA / "mkv_audio_starts_late.mkv")
    assert info.start_ms == pytest.approx(4900, abs=20)
    assert not samples[0, : info.start_ms * 16 - 16].any()
    assert np.abs(samples[0, 5 * RATE_HZ : 6 * RATE_HZ]).max() > 0.05


@pytest.mark.parametrize(
    ("container", "codec"), [("mp4", "aac"), ("matroska", "libopus"), ("mpegts", "aac")]
)
def test_audio_behind_a_picture_keeps_the_pictures_time(
    container: str, codec: str, decode: Decode, tmp_path: Path
) -> None:
    path = tmp_path / "blob"
    encode(path, container, codec, rate_hz=48_000, start_s=2.0, video_s=5.0)
    samples, info, _ = decode(path)
    assert info.start_ms == pytest.approx(2000, abs=60)
    assert samples.shape[1] / RATE_HZ == pytest.approx(4.99, abs=0.15)


@pytest.mark.parametrize(
    ("container", "codec"), [("mpegts", "aac"), ("mp4", "aac"), ("matroska", "libopus")]
)
def test_a_clock_that_starts_late_is_no_delay(
    container: str, codec: str, decode: Decode, tmp_path: Path
) -> None:
    path = tmp_path / "blob"
    encode(path, container, codec, rate_hz=48_000, start_s=3.0)
    samples, info, _ = decode(path)
    assert info.start_ms == 0
    assert samples.shape[1] / RATE_HZ == pytest.approx(2.99, abs=0.1)


@pytest.mark.parametrize(("container", "codec"), [("webm", "libopus"), ("mp4", "aac")])
def test_time_without_packets_is_silence_and_not_left_out(
    container: str, codec: str, decode: Decode, tmp_path: Path
) -> None:
    path = tmp_path / "blob"
    encode(path, container, codec, rate_hz=48_000, hole=(1.0, 5.0))
    samples, _, _ = decode(path)
    assert samples.shape[1] / RATE_HZ == pytest.approx(7.99, abs=0.1)
    assert not samples[0, 2 * RATE_HZ : 5 * RATE_HZ].any()
    assert np.abs(samples[0, 6 * RATE_HZ : 7 * RATE_HZ]).max() > 0.05


def test_the_second_track_is_read_if_it_is_the_default(decode: Decode, tmp_path: Path) -> None:
    data = (DATA / "mkv_two_tracks_first_default.mkv").read_bytes()
    _, first, _ = decode(DATA / "mkv_two_tracks_first_default.mkv")
    # Matroska's FlagDefault is element 0x88; the first track leaves it out, so it takes the place
    # of its language (the rest becomes a void element).
    data = data.replace(b"\x88\x81\x00", b"\x88\x81\x01", 1)
    data = data.replace(b"\x22\xb5\x9c\x83eng", b"\x88\x81\x00\xec\x82\x00\x00", 1)
    (tmp_path / "swapped").write_bytes(data)
    _, second, _ = decode(tmp_path / "swapped")
    assert (first.num_tracks, first.num_channels) == (2, 1)
    assert (second.num_tracks, second.num_channels) == (2, 2)
    assert second.track_index != first.track_index


def test_nothing_that_a_playlist_names_is_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(wav_bytes(sentence_b().tobytes()))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.mp3"
        lists = {
            "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n"
            f"#EXTINF:9,\n{address}\n#EXTINF:9,\nfile://{secret}\n#EXT-X-ENDLIST\n",
            "concat": f"ffconcat version 1.0\nfile '{secret}'\nfile '{address}'\n",
            "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
            "m=audio 5004 RTP/AVP 0\n",
            "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static">'
            '<Period><AdaptationSet mimeType="audio/mp4"><Representation id="1">'
            f"<BaseURL>{address}</BaseURL></Representation></AdaptationSet></Period></MPD>",
        }
        for name, text in lists.items():
            (tmp_path / name).write_text(text)
            with pytest.raises(MediaUndecodable):
                probe(tmp_path / name, DecodeLimits())
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize("kind", ["picture", "subtitles"])
def test_what_ffmpeg_could_open_but_is_no_recording_is_refused(kind: str, tmp_path: Path) -> None:
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360"
        "606000000004000176f0d2c10000000049454e44ae426082"
    )
    subtitles = b"1\n00:00:01,000 --> 00:00:02,000\nHello\n\n" * 20
    (tmp_path / "a.mp3").write_bytes(png if kind == "picture" else subtitles)
    with pytest.raises(MediaUndecodable):
        probe(tmp_path / "a.mp3", DecodeLimits())


def test_a_recording_of_nothing_but_nan_is_refused(decode: Decode, tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.full(16_000, np.nan, np.float32), RATE_HZ, subtype="FLOAT")
    with pytest.raises(MediaUndecodable):
        decode(tmp_path / "a.wav")


def test_one_sample_is_a_recording(decode: Decode, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(b"\x01\x02"))
    assert decode(tmp_path / "a.wav")[0].shape == (1, 1)


def test_an_interrupted_fragment_says_that_it_is_incomplete(decode: Decode, tmp_path: Path) -> None:
    path = make_case("m4a_truncated_no_moov.m4a", tmp_path)
    with pytest.raises(MediaUndecodable, match="incomplete"):
        decode(path)


def test_an_mp4_cut_off_in_its_data_gives_what_is_there(decode: Decode, tmp_path: Path) -> None:
    data = (DATA / "alac.m4a").read_bytes()
    whole = decode(DATA / "alac.m4a")[0].shape[1]
    encode(tmp_path / "front.mp4", "ismv", "aac", samples=np.tile(sentence_b(), 4))
    fragmented = (tmp_path / "front.mp4").read_bytes()
    (tmp_path / "cut").write_bytes(fragmented[: len(fragmented) * 6 // 10])
    assert 0 < decode(tmp_path / "cut")[0].shape[1] < 4 * whole
    (tmp_path / "head").write_bytes(data[:4000])
    with pytest.raises(MediaError):
        decode(tmp_path / "head")


def test_splitting_gives_every_channel_its_own_row(decode: Decode) -> None:
    samples, _, _ = decode(DATA / "stereo_speaker_per_channel_mulaw.wav", Channels.SPLIT)
    assert samples.shape[0] == 2
    left, right = (np.abs(row).max() for row in samples[:, : 7 * RATE_HZ])
    assert left > 0.1 > 10 * right


def test_splitting_a_mono_recording_gives_one_row(decode: Decode) -> None:
    assert decode(DATA / "aiff_s16be.aiff", Channels.SPLIT)[0].shape[0] == 1


def test_opposite_channels_do_not_cancel(decode: Decode, tmp_path: Path) -> None:
    samples, _, _ = decode(make_case("stereo_antiphase.wav", tmp_path))
    expected = sentence_b() / 32768 * 0.9
    np.testing.assert_allclose(samples[0], expected, atol=1e-3)


def test_a_dead_channel_does_not_halve_the_other(decode: Decode, tmp_path: Path) -> None:
    samples, _, _ = decode(make_case("stereo_left_dead.wav", tmp_path))
    np.testing.assert_allclose(samples[0], sentence_b() / 32768 * 0.9, atol=1e-3)
