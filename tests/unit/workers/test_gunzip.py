import gzip

import numpy as np
import pytest

from core.errors import MediaUnreachable
from workers.gunzip import Gunzip

MIB = 1 << 20


def unpack(packed: bytes, *, block: int) -> tuple[bytes, int]:
    """Return what is in it, and the largest piece."""
    gunzip = Gunzip()
    starts = range(0, len(packed), block)
    pieces = [p for start in starts for p in gunzip.unpack(packed[start : start + block])]
    gunzip.check_end()
    return b"".join(pieces), max(map(len, pieces), default=0)


@pytest.mark.parametrize("num_bytes", [0, 1, MIB, MIB + 1, 3 * MIB + 100])
@pytest.mark.parametrize("block", [997, 1 << 24])
def test_what_comes_out_went_in_and_no_piece_is_large(num_bytes, block):
    for data in (bytes(num_bytes), np.random.default_rng(0).bytes(num_bytes)):
        packed = gzip.compress(data, 1)
        out, largest = unpack(packed + packed, block=block)  # two members
        assert out == data + data
        assert largest <= MIB


@pytest.mark.parametrize("packed", [b"RIFF", gzip.compress(b"RIFF", mtime=0)[:-1], b""])
def test_what_is_no_gzip_or_half_of_one_is_refused(packed):
    with pytest.raises(MediaUnreachable):
        unpack(packed, block=10)
