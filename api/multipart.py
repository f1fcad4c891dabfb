"""multipart/form-data as a stream of parts: a file's bytes are handed on as they arrive."""

import re
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from core.errors import InvalidInput, InvalidOption

MAX_FIELDS = 128
MAX_FIELD_BYTES = 1 << 20
"""Of all fields together. A prompt may have 65,536 characters of four bytes."""


@dataclass(frozen=True, slots=True)
class Field:
    """A plain form field, complete."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class FileStart:
    """A file begins; its `FileData` follow until another part or the end.

    Attributes:
        filename: Exactly as the caller named it; never a path to us.
    """

    name: str
    filename: str
    content_type: str | None


@dataclass(frozen=True, slots=True)
class FileData:
    """The next bytes of the file that began last."""

    data: bytes


Part = Field | FileStart | FileData

FILE_FIELD = "file"
"""The field of every form here that is a file, and never a text."""


async def read_parts(content_type: str, body: AsyncIterable[bytes]) -> AsyncIterator[Part]:
    """Yield the parts of a form in the order of arrival; memory is bounded by one chunk.

    Raises:
        InvalidInput: The body is no complete multipart form, or its fields are too many or big.
    """
    parser = _FormParser(_boundary(content_type))
    async for chunk in body:
        for part in parser.feed(chunk):
            yield part
    parser.check_complete()


class _FormParser:
    def __init__(self, boundary: bytes) -> None:
        self._ready: list[Part] = []
        self._headers: dict[str, bytes] = {}
        self._header_name = b""
        self._header_value = b""
        self._field_name: str | None = None
        self._field_value = bytearray()
        self._num_fields = 0
        self._num_field_bytes = 0
        self._is_complete = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers_begin,
                "on_header_field": self._on_header_name,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._part_begin,
                "on_part_data": self._part_data,
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
            max_header_size=16_384,
        )

    def feed(self, chunk: bytes) -> list[Part]:
        try:
            self._parser.write(chunk)
        except FormParserError as exc:
            raise InvalidInput(f"The multipart body is malformed: {exc}") from exc
        ready, self._ready = self._ready, []
        return ready

    def check_complete(self) -> None:
        if not self._is_complete:
            raise InvalidInput("The multipart body ends before its last boundary.")

    def _headers_begin(self) -> None:
        self._headers = {}

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._header_name.decode("latin-1").lower()] = self._header_value
        self._header_name = self._header_value = b""

    def _part_begin(self) -> None:
        name, filename = parse_disposition(self._headers.get("content-disposition", b""))
        if filename is None and name == FILE_FIELD:
            raise InvalidOption(f"{name}: this part has no filename: send it as a file", param=name)
        if filename is None:
            self._num_fields += 1
            if self._num_fields > MAX_FIELDS:
                raise InvalidInput(f"The form has more than {MAX_FIELDS} fields.")
            self._field_name = name
        else:
            raw_type = self._headers.get("content-type", b"").decode("latin-1")
            content_type = raw_type[:255] if raw_type.isprintable() and raw_type else None
            self._ready.append(FileStart(name, filename, content_type))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field_name is None:
            self._ready.append(FileData(data[start:end]))
            return
        self._num_field_bytes += end - start
        if self._num_field_bytes > MAX_FIELD_BYTES:
            raise InvalidOption(
                f"{self._field_name}: the form's fields exceed {MAX_FIELD_BYTES} bytes",
                param=self._field_name,
            )
        self._field_value += data[start:end]

    def _part_end(self) -> None:
        if self._field_name is None:
            return
        value = _decode(bytes(self._field_value), param=self._field_name)
        self._ready.append(Field(self._field_name, value))
        self._field_name = None
        self._field_value.clear()

    def _end(self) -> None:
        self._is_complete = True


# A parameter: a token, "=", and a quoted string or what stands before the next semicolon.
_PARAMETER = re.compile(rb';\s*([^\s=;"]+)\s*=\s*(?:"((?:\\["\\]|[^"])*)"|([^;]*))')


def parse_disposition(header: bytes) -> tuple[str, str | None]:
    r"""Return the field name and the file name (None for a plain field) of a part.

    Names are UTF-8; a file's that is not is read as Latin-1, as old pages send it: it is only
    shown. `filename*` (RFC 5987) wins over `filename`. In quotes, browsers and HTTP
    libraries write a quote as `%22` and line ends as `%0D`, `%0A` (WHATWG HTML, "multipart form
    data"), others as `\"`; nothing else is decoded, so that `100%.wav` stays `100%.wav`.

    Raises:
        InvalidInput: There is no name, or a name is not text.
    """
    parameters = {
        match[1].lower(): match[2] if match[2] is not None else match[3].strip()
        for match in _PARAMETER.finditer(header)
    }
    if b"name" not in parameters:
        raise InvalidInput("A part of the form has no name.")
    name = _decode(_unquote(parameters[b"name"]), param="form")
    if (extended := parameters.get(b"filename*")) is not None:
        return name, _decode_extended(extended, param=name)
    if (plain := parameters.get(b"filename")) is not None:
        return name, _decode(_as_utf8(_unquote(plain)), param=name)
    return name, None


def _unquote(raw: bytes) -> bytes:
    raw = re.sub(rb'\\(["\\])', rb"\1", raw)
    return re.sub(rb"%(22|0[dD]|0[aA])", lambda match: bytes.fromhex(match[1].decode()), raw)


def _decode_extended(raw: bytes, *, param: str) -> str:
    charset, _, rest = raw.partition(b"'")
    _language, _, value = rest.partition(b"'")
    if charset.lower() not in (b"utf-8", b"iso-8859-1"):
        raise InvalidOption(f"{param}: the filename's character set is not UTF-8", param=param)
    decoded = unquote_to_bytes(value)
    if charset.lower() == b"iso-8859-1":
        decoded = decoded.decode("latin-1").encode()
    return _decode(decoded, param=param)


def _as_utf8(raw: bytes) -> bytes:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1").encode()
    return raw


def _decode(raw: bytes, *, param: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        raise InvalidOption(f"{param}: not valid UTF-8", param=param) from exc
    if "\0" in text:  # a text column of Postgres cannot hold it
        raise InvalidOption(f"{param}: contains a NUL character", param=param)
    return text


def _boundary(content_type: str) -> bytes:
    kind, parameters = parse_options_header(content_type)
    boundary = parameters.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 256:
        raise InvalidInput("Send multipart/form-data with a boundary.")
    return boundary
