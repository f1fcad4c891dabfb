import io
import struct

import numpy as np
import pytest
import soundfile

from core.audio.riff import correct, is_mono


def wav(num_channels: int) -> bytes:
    out = io.BytesIO()
    samples = np.zeros((800, num_channels), np.float32)
    soundfile.write(out, samples, 8000, format="WAV", subtype="PCM_16")
    return out.getvalue()


@pytest.mark.parametrize("num_channels", [1, 2, 6])
def test_only_a_wav_of_one_channel_is_mono_and_is_left_at_its_start(num_channels: int) -> None:
    file = io.BytesIO(wav(num_channels))
    assert is_mono(file) == (num_channels == 1)
    assert file.tell() == 0


def test_chunks_before_the_format_do_not_matter() -> None:
    whole = wav(1)
    note = struct.pack("<4sI", b"LIST", 3) + b"abc\0"  # odd sizes are padded
    assert is_mono(io.BytesIO(whole[:12] + note + whole[12:]))


@pytest.mark.parametrize("data", [b"", b"RIFF", b"OggS" + bytes(60), b"RIFF\0\0\0\0WAVEfmt "])
def test_what_is_no_wav_is_neither_mono_nor_padded(data: bytes) -> None:
    assert not is_mono(io.BytesIO(data))
    assert correct(io.BytesIO(data)) is None


def test_padding_after_the_sound_is_cut_off() -> None:
    whole = wav(1)
    assert correct(io.BytesIO(whole)) is None
    corrected = correct(io.BytesIO(whole + bytes(64)))
    assert corrected is not None
    assert not corrected.is_damaged
    assert corrected.read() == whole


LOST = bytes(range(128, 256)) * 64


@pytest.mark.parametrize("piece", [1, 5, 41, 4096])
def test_sound_after_the_size_in_the_header_is_brought_back(piece: int) -> None:
    whole = wav(1) + LOST
    corrected = correct(io.BytesIO(whole))
    assert corrected is not None
    assert corrected.is_damaged
    read = b"".join(iter(lambda: corrected.read(piece), b""))
    assert read == whole[:40] + b"\xff\xff\xff\xff" + whole[44:]


@pytest.mark.parametrize(
    "rest",
    [
        struct.pack("<4sI", b"LIST", len(LOST)) + LOST,
        b"TAG\x80\x81\x82\x83\x84" + LOST,
        b"APETAGEX" + LOST,
        LOST[:4000],
    ],
)
def test_what_programs_leave_after_the_sound_is_no_sound(rest: bytes) -> None:
    assert correct(io.BytesIO(wav(1) + rest)) is None
