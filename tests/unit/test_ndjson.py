from hypothesis import given
from hypothesis import strategies as st

from core.ndjson import Line, LineCounter, iter_lines

bodies = st.lists(st.sampled_from([b"\n", b" ", b"{}", b"abc", b"\r", b"x" * 30])).map(b"".join)


def blocks_of(body: bytes, size: int) -> list[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


@given(bodies, st.integers(1, 12))
def test_lines_do_not_depend_on_how_the_bytes_arrive(body: bytes, size: int) -> None:
    lines = list(iter_lines(blocks_of(body, size), start=0, max_bytes=1000))
    assert [line.data for line in lines] == [x for x in body.split(b"\n") if x.strip()]


@given(bodies, st.integers(1, 12), st.integers(1, 12))
def test_reading_goes_on_from_the_end_of_any_line(body: bytes, size: int, other: int) -> None:
    lines = list(iter_lines(blocks_of(body, size), start=0, max_bytes=1000))
    for number, line in enumerate(lines):
        rest = iter_lines(blocks_of(body[line.end :], other), start=line.end, max_bytes=1000)
        assert list(rest) == lines[number + 1 :]


@given(bodies, st.integers(1, 12))
def test_the_counter_counts_what_the_reader_yields(body: bytes, size: int) -> None:
    counter = LineCounter()
    for block in blocks_of(body, size):
        counter.feed(block)
    assert counter.count == len(list(iter_lines([body], start=0, max_bytes=20)))


def test_a_line_that_is_too_long_is_passed_over_and_the_next_one_read() -> None:
    body = b"a\n" + b"x" * 50 + b"\nb"
    lines = list(iter_lines(blocks_of(body, 7), start=0, max_bytes=20))
    assert lines == [Line(b"a", 2), Line(None, 53), Line(b"b", 54)]
