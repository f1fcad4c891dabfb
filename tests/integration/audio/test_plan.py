"""From real files to windows: speech is in them, and little else."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from core.audio.decode import open_media
from core.audio.media import DecodeLimits
from core.audio.plan import MediaSummary, WindowIterator, iter_windows
from core.audio.speech import SpeechDetector, _load_session
from core.audio.windows import PlannedWindow, WindowRules
from core.options import Channels
from tests.integration.audio.conftest import Blocks
from tests.integration.audio.media_files import DATA, RATE_HZ, make_case, sentence_b

Planned = tuple[list[tuple[PlannedWindow, np.ndarray]], MediaSummary]


def plan(path: Path, *, vad: bool = True, channels: Channels = Channels.MIX) -> Planned:
    with open_media(path, limits=DecodeLimits(), channels=channels) as stream:
        windows = iter_windows(stream, window_ms=30_000, vad=vad)
        return list(windows), windows.summary


def spans_s(planned: Planned) -> list[tuple[float, float]]:
    return [(w.start_sample / RATE_HZ, w.end_sample / RATE_HZ) for w, _ in planned[0]]


def noise(seconds: float, rms: float) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(int(seconds * RATE_HZ)) * rms


@pytest.mark.parametrize("name", ["beeps_15s.ogg", "music_16s.ogg", "wav_50ms.wav"])
def test_what_is_not_speech_gives_no_window(name: str) -> None:
    windows, summary = plan(DATA / name)
    assert windows == []
    assert summary.speech_ms == 0
    assert summary.duration_ms > 0


@pytest.mark.parametrize("rms", [0.0, 3e-5, 4e-3, 0.1])
def test_silence_and_noise_of_any_level_give_no_window(rms: float, tmp_path: Path) -> None:
    sf.write(tmp_path / "a.flac", noise(12, rms), RATE_HZ)
    assert plan(tmp_path / "a.flac")[0] == []


def test_only_the_sentence_before_a_beep_is_a_window() -> None:
    [(start, end)] = spans_s(plan(DATA / "greeting_then_voicemail_beep.flac"))
    assert start < 0.5
    assert 2 < end < 3.3


def test_a_late_sentence_keeps_its_time() -> None:
    [(start, end)] = spans_s(plan(DATA / "lead_silence_35s.flac"))
    assert 34.7 < start < 35.2  # a short lead-in: there is nothing to hear before
    assert end > 37.5


def test_a_margin_of_sound_stays_before_a_sentence(tmp_path: Path) -> None:
    quiet = np.concatenate([noise(5, 3e-4), sentence_b() / 32768, noise(1, 3e-4)])
    sf.write(tmp_path / "a.wav", quiet, RATE_HZ, subtype="FLOAT")
    [(start, _end)] = spans_s(plan(tmp_path / "a.wav"))
    assert start < 4.6


def test_no_window_begins_before_a_late_track_does() -> None:
    [(start, end)] = spans_s(plan(DATA / "mkv_audio_starts_late.mkv"))
    assert start >= 4.88
    assert end > 11.5


def test_a_long_silence_is_in_no_window() -> None:
    first, second = spans_s(plan(DATA / "speech_gap40_speech.flac"))
    assert first[1] < 8.1
    assert second[0] > 46


def test_the_last_sample_is_in_the_window_if_it_is_speech() -> None:
    windows, summary = plan(DATA / "ends_on_last_sample.wav")
    assert summary.duration_ms == 6748
    assert windows[-1][0].end_sample == 107_962


def test_no_window_ends_beyond_the_recording() -> None:
    windows, summary = plan(DATA / "window_plus_50ms.ogg")
    assert windows[-1][0].end_sample <= summary.duration_ms * 16
    assert all(window.num_samples > RATE_HZ for window, _ in windows)


@pytest.mark.parametrize("level_db", [-60, -40, -20, 0])
def test_quiet_speech_is_heard(level_db: int, tmp_path: Path) -> None:
    quiet = sentence_b() / 32768 * 10 ** (level_db / 20)
    sf.write(tmp_path / "a.wav", quiet, RATE_HZ, subtype="FLOAT")
    [(start, end)] = spans_s(plan(tmp_path / "a.wav"))
    assert start < 0.3
    assert end > 2.7


def test_opposite_channels_are_heard(tmp_path: Path) -> None:
    assert len(plan(make_case("stereo_antiphase.wav", tmp_path))[0]) == 1


def test_split_channels_have_windows_of_their_own() -> None:
    windows, summary = plan(DATA / "stereo_speaker_per_channel_mulaw.wav", channels=Channels.SPLIT)
    assert [(w.index, w.channel) for w, _ in windows] == [(0, 0), (1, 1)]
    assert windows[0][0].end_sample < 8 * RATE_HZ
    assert windows[1][0].start_sample > 6.6 * RATE_HZ
    assert summary.num_channels == 2


@pytest.mark.parametrize("vad", [True, False])
def test_the_samples_of_a_window_are_those_of_the_recording(vad: bool, tmp_path: Path) -> None:
    speech = np.tile(np.concatenate((sentence_b(), np.zeros(3000, np.int16))), 25)
    sf.write(tmp_path / "a.wav", speech, RATE_HZ)
    windows, summary = plan(tmp_path / "a.wav", vad=vad)
    assert len(windows) > 2
    assert summary.num_windows == len(windows)
    for window, samples in windows:
        expected = speech[window.start_sample : window.end_sample] / np.float32(32768)
        np.testing.assert_array_equal(samples, expected)
    if not vad:
        assert sum(len(samples) for _, samples in windows) == len(speech)


@pytest.mark.parametrize("size", [999, 16_384, 100_000])
def test_windows_do_not_depend_on_the_blocks(size: int) -> None:
    speech = np.tile(sentence_b() / np.float32(32768), 15)
    samples = np.stack([speech, np.roll(speech, 5000)]).astype(np.float32)

    def windows(block: int) -> list[PlannedWindow]:
        rules = WindowRules(max_samples=20 * RATE_HZ)
        return [window for window, _ in WindowIterator(Blocks(samples, block), rules)]

    assert windows(size) == windows(RATE_HZ)


def test_probabilities_do_not_depend_on_the_blocks() -> None:
    speech = sentence_b() / np.float32(32768)
    whole, pieces = SpeechDetector(), SpeechDetector()
    expected = [whole.feed(speech), whole.finish()]
    got = [pieces.feed(speech[i : i + 777]) for i in range(0, len(speech), 777)]
    got.append(pieces.finish())
    for name in ("probabilities", "energies"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(part, name) for part in expected]),
            np.concatenate([getattr(part, name) for part in got]),
        )


def test_the_model_hears_each_frame_after_the_end_of_the_one_before() -> None:
    # As silero_vad 6.2.3 feeds it: 64 samples of context, state carried on, one frame a call.
    frames = (sentence_b()[: 90 * 512] / np.float32(32768)).reshape(-1, 512)
    detector = SpeechDetector()
    # A loud first frame keeps the level from being raised.
    frames[0, 0] = 1.0
    frames[0, 1:] = 0.3
    session = _load_session()
    hidden = cell = np.zeros((1, 1, 128), np.float32)
    context = np.zeros(64, np.float32)
    expected = []
    for frame in frames:
        heard = np.concatenate((context, frame))[None]
        names = ["speech_probs", "hn", "cn"]
        probability, hidden, cell = session.run(names, {"input": heard, "h": hidden, "c": cell})
        expected.append(float(probability[0]))
        context = frame[-64:]
    parts = [detector.feed(frames.reshape(-1)), detector.finish()]
    got = np.concatenate([part.probabilities for part in parts])
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_the_summary_is_there_only_after_the_last_window() -> None:
    with open_media(DATA / "noextension", limits=DecodeLimits(), channels=Channels.MIX) as stream:
        windows = iter_windows(stream, window_ms=30_000, vad=True)
        with pytest.raises(RuntimeError):
            _ = windows.summary


def test_long_silence_costs_nothing_and_what_follows_is_judged_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speech = sentence_b() / np.float32(32768)
    samples = np.concatenate((speech, np.zeros(400 * RATE_HZ + 77, np.float32), speech))

    def listen() -> tuple[np.ndarray, int]:
        detector = SpeechDetector()
        asked = Counted(detector._session)
        monkeypatch.setattr(detector, "_session", asked)
        parts = detector.feed(samples), detector.finish()
        return np.concatenate([part.probabilities for part in parts]), asked.num_calls

    heard, num_calls = listen()
    monkeypatch.setattr("core.audio.speech._SETTLED_FRAMES", len(samples))
    always, num_always = listen()
    np.testing.assert_allclose(heard, always, atol=1e-3)
    assert num_calls < num_always / 2


class Counted:
    """A session that counts how often it is asked."""

    def __init__(self, session) -> None:
        self.num_calls = 0
        self._session = session

    def run(self, *args):
        self.num_calls += 1
        return self._session.run(*args)
