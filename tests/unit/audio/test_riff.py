import io
import struct

import numpy as np
import pytest
import soundfile

from core.audio.riff import find_padding, is_mono


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
    assert find_padding(io.BytesIO(data)) is None


def test_padding_begins_after_the_sound() -> None:
    whole = wav(1)
    assert find_padding(io.BytesIO(whole)) is None
    assert find_padding(io.BytesIO(whole + bytes(64))) == len(whole)
