"""Forms arrive in any pieces; names arrive in any spelling."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.multipart import (
    MAX_FIELD_BYTES,
    MAX_FIELDS,
    Field,
    FileData,
    FileStart,
    parse_disposition,
    read_parts,
)
from core.errors import InvalidInput, InvalidOption

TYPE = "multipart/form-data; boundary=b"


def part(disposition: str, body: bytes, content_type: str | None = None) -> bytes:
    head = f"--b\r\nContent-Disposition: form-data; {disposition}\r\n"
    head += f"Content-Type: {content_type}\r\n" if content_type else ""
    return head.encode() + b"\r\n" + body + b"\r\n"


def read(body: bytes, *, step: int = 1 << 20, content_type: str = TYPE) -> list:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), step):
            yield body[start : start + step]

    async def collect() -> list:
        return [item async for item in read_parts(content_type, chunks())]

    return asyncio.run(collect())


@given(st.binary(max_size=300), st.integers(1, 64))
def test_a_form_in_any_pieces_gives_the_same_parts(content: bytes, step: int):
    if b"\r\n--b" in content:
        return
    body = part('name="language"', b"en")
    body += part('name="file"; filename="a.wav"', content, "audio/wav")
    body += part('name="prompt"', "Zürich".encode()) + b"--b--\r\n"
    parts = read(body, step=step)
    data = b"".join(item.data for item in parts if isinstance(item, FileData))
    rest = [item for item in parts if not isinstance(item, FileData)]
    assert data == content
    assert rest == [
        Field("language", "en"),
        FileStart("file", "a.wav", "audio/wav"),
        Field("prompt", "Zürich"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        part('name="a"', b"1"),
        part('name="a"', b"1") + b"--b",
        part('filename="x"', b"1") + b"--b--",
        b"--b\r\n\r\nno headers\r\n--b--",
        part('name="a"', b"\xff") + b"--b--",
        part('name="a"', b"x\0y") + b"--b--",
    ],
)
def test_what_is_no_complete_form_is_refused(body: bytes):
    with pytest.raises(InvalidInput):
        read(body)


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "multipart/form-data", "multipart/form-data; boundary="]
)
def test_a_form_needs_its_boundary(content_type: str):
    with pytest.raises(InvalidInput):
        read(b"--b--", content_type=content_type)


def test_fields_are_bounded_in_number_and_size():
    with pytest.raises(InvalidInput, match=str(MAX_FIELDS)):
        read(part('name="a"', b"") * (MAX_FIELDS + 1) + b"--b--")
    with pytest.raises(InvalidOption, match="exceed"):
        read(part('name="a"', b"x" * (MAX_FIELD_BYTES + 1)) + b"--b--")


@pytest.mark.parametrize(
    ("header", "filename"),
    [
        ('form-data; name="file"', None),
        ('form-data; name="file"; filename=""', ""),
        ('form-data; name="file"; filename="a.wav"', "a.wav"),
        ("form-data; name=file; filename=a.wav", "a.wav"),
        ('form-data; name="file"; filename="会議 録音.wav"', "会議 録音.wav"),
        ('form-data; name="file"; filename="a;b=c.wav"', "a;b=c.wav"),
        (r'form-data; name="file"; filename="say \"hi\".wav"', 'say "hi".wav'),
        ('form-data; name="file"; filename="say %22hi%22.wav"', 'say "hi".wav'),
        ('form-data; name="file"; filename="%d_100%.wav"', "%d_100%.wav"),
        (r'form-data; name="file"; filename="a\b.wav"', r"a\b.wav"),
        (r'form-data; name="file"; filename="a\\b.wav"', r"a\b.wav"),
        ('form-data; name="file"; filename="x"; filename*=UTF-8\'\'%E4%BC%9A.wav', "会.wav"),
        ("form-data; name=\"file\"; filename*=utf-8'en'a%20b.wav", "a b.wav"),
        ("form-data; name=\"file\"; filename*=ISO-8859-1''%E9.wav", "é.wav"),
        ('form-data; filename="a.wav"; name="file"', "a.wav"),
    ],
)
def test_file_names_are_read_in_every_spelling(header: str, filename: str | None):
    assert parse_disposition(header.encode()) == ("file", filename)


def test_a_file_name_of_an_old_page_is_read_as_latin_1():
    header = 'form-data; name="file"; filename="Gespräch.wav"'.encode("latin-1")
    assert parse_disposition(header) == ("file", "Gespräch.wav")


@pytest.mark.parametrize(
    "header",
    [
        b"form-data",
        b'form-data; filename="a"',
        b'form-data; name="\xff"; filename="a"',
        b"form-data; name=\"file\"; filename*=UTF-8''%00",
        b"form-data; name=\"file\"; filename*=UTF-8''%FF",
        b"form-data; name=\"file\"; filename*=KOI8-R''a",
    ],
)
def test_names_that_are_no_text_are_refused(header: bytes):
    with pytest.raises(InvalidInput):
        parse_disposition(header)
