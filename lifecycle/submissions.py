"""What a caller asks for, read by name: the options of a job and where its media is."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from core.checkpoints import get_model
from core.errors import InvalidOption
from core.options import Priority, TranscribeOptions
from core.outbound import check_url
from core.settings import Settings
from core.signing import check_secret

MAX_METADATA_BYTES = 16_384
MAX_REFERENCE_CHARS = 500
MAX_DELETE_AFTER_S = 10 * 365 * 24 * 3600
MAX_HEADERS = 20

JOB_FIELDS = frozenset(
    {
        "model", "priority", "reference", "metadata", "delete_after_s", "webhook_url",
        "webhook_secret", "reuse",
    }
)  # fmt: skip
OPTION_FIELDS = frozenset(TranscribeOptions.model_fields)


class SourceKind(StrEnum):
    """Where a job's media comes from, by the name of the field that says so."""

    MEDIA_KEY = "media_key"
    MEDIA_URL = "media_url"
    UPLOAD_ID = "upload_id"


HEADERS_FIELD = "media_headers"
SOURCE_FIELDS = frozenset({*SourceKind, HEADERS_FIELD})

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_OUR_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "range", "if-range", "expect"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the media of a job is.

    Attributes:
        headers: Sent when a `media_url` is fetched; they may be credentials.
    """

    kind: SourceKind
    value: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Everything about a job but its media, checked.

    Attributes:
        reuse: Whether a finished transcript of the same media and options may be copied.
    """

    model: str
    options: TranscribeOptions
    priority: Priority = Priority.STANDARD
    reference: str | None = None
    metadata: dict[str, Any] | None = None
    delete_after: timedelta | None = None
    webhook_url: str | None = None
    webhook_secret: str | None = field(default=None, repr=False)
    reuse: bool = True


def parse_fields(fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return form fields by name; `metadata` is read as JSON, empty values mean unset.

    Raises:
        InvalidOption: A field came twice, or `metadata` is no JSON.
    """
    raw: dict[str, Any] = {}
    for name, value in fields:
        if name in raw:
            raise InvalidOption(f"{name}: given more than once", param=name)
        raw[name] = value if value != "" else None
    if raw.get("metadata") is not None:
        raw["metadata"] = read_json(raw["metadata"], param="metadata")
    return raw


def parse_submission(settings: Settings, raw: Mapping[str, Any]) -> Submission:
    """Return the job that `raw` (names as in the HTTP interface, None for unset) asks for.

    Raises:
        InvalidOption: Something is unknown, of the wrong type, or out of range; `param` names it.
    """
    for name in raw:
        if name not in JOB_FIELDS | OPTION_FIELDS:
            raise InvalidOption(f"{name[:64]}: there is no such option", param=name[:64])
    for name, value in raw.items():
        check_text(value, param=name)
    webhook_url = _read_string(raw, "webhook_url")
    if webhook_url is not None:
        allow_private = settings.webhook_allow_private
        check_url(webhook_url, allow_private=allow_private, param="webhook_url")
    webhook_secret = _read_string(raw, "webhook_secret")
    if webhook_secret is not None:
        check_secret(webhook_secret, param="webhook_secret")
    return Submission(
        model=get_model(settings, _read_string(raw, "model")).name,
        options=TranscribeOptions.parse({k: v for k, v in raw.items() if k in OPTION_FIELDS}),
        priority=_read_priority(raw),
        reference=_read_string(raw, "reference", max_chars=MAX_REFERENCE_CHARS),
        metadata=_read_metadata(raw),
        delete_after=_read_delete_after(raw),
        webhook_url=webhook_url,
        webhook_secret=webhook_secret,
        reuse=_read_bool(raw, "reuse") is not False,
    )


def take_source(settings: Settings, raw: dict[str, Any]) -> Source:
    """Remove from `raw` what says where the media is, and return it.

    Raises:
        InvalidOption: There is none, or more than one, or it cannot be used.
    """
    values = {kind: raw.pop(kind, None) for kind in SourceKind}
    headers = _read_headers(raw.pop(HEADERS_FIELD, None))
    given = {kind: value for kind, value in values.items() if value is not None}
    if len(given) != 1:
        names = ", ".join(given or SourceKind)
        problem = "name only one of" if given else "name one of"
        raise InvalidOption(f"{problem} {names}", param=next(iter(given), "media_key"))
    ((kind, value),) = given.items()
    if not isinstance(value, str):
        raise InvalidOption(f"{kind}: must be text", param=kind)
    check_text(value, param=kind)
    if kind is SourceKind.MEDIA_URL:
        check_url(value, allow_private=settings.webhook_allow_private, param=kind)
    elif headers:
        raise InvalidOption(f"{HEADERS_FIELD}: only with a media_url", param=HEADERS_FIELD)
    return Source(kind=kind, value=value, headers=headers)


def check_text(value: object, *, param: str) -> None:
    """Refuse what a text or JSON column cannot hold: NUL and halves of surrogate pairs.

    Raises:
        InvalidOption: `value`, or something in it, is such a text.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if "\0" in item or any("\ud800" <= char <= "\udfff" for char in item):
                raise InvalidOption(f"{param}: contains a character that is not text", param=param)
        elif isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item


def _read_headers(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_HEADERS:
        raise InvalidOption(
            f"{HEADERS_FIELD}: an object of at most {MAX_HEADERS} headers", param=HEADERS_FIELD
        )
    for name, text in value.items():
        usable = (
            _HEADER_NAME.fullmatch(name)
            and name.lower() not in _OUR_HEADERS
            and isinstance(text, str)
            and len(text) <= 8192
            and text.isascii()
            and text.isprintable()
        )
        if not usable:
            raise InvalidOption(
                f"{HEADERS_FIELD}: {name[:64]!r} cannot be sent", param=HEADERS_FIELD
            )
    return value


def read_json(text: str, *, param: str) -> Any:  # noqa: ANN401
    """Return what the JSON says; raise `InvalidOption` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidOption(f"{param}: not valid JSON", param=param) from exc


def _read_metadata(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    metadata = raw.get("metadata")
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise InvalidOption("metadata: must be a JSON object", param="metadata")
    try:
        size = len(json.dumps(metadata, allow_nan=False))
    except (ValueError, RecursionError) as exc:
        raise InvalidOption(f"metadata: {exc}", param="metadata") from exc
    if size > MAX_METADATA_BYTES:
        raise InvalidOption(f"metadata: exceeds {MAX_METADATA_BYTES} bytes", param="metadata")
    return metadata


def _read_priority(raw: Mapping[str, Any]) -> Priority:
    name = _read_string(raw, "priority")
    known = {priority.name.lower(): priority for priority in Priority}
    if name is not None and name not in known:
        raise InvalidOption(f"priority: one of {', '.join(known)}", param="priority")
    return known[name] if name is not None else Priority.STANDARD


def _read_delete_after(raw: Mapping[str, Any]) -> timedelta | None:
    value = raw.get("delete_after_s")
    if value is None:
        return None
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 12
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    seconds = int(value) if is_text or is_whole else 0
    if not 1 <= seconds <= MAX_DELETE_AFTER_S:
        raise InvalidOption(
            f"delete_after_s: whole seconds, 1 to {MAX_DELETE_AFTER_S}", param="delete_after_s"
        )
    return timedelta(seconds=seconds)


def _read_bool(raw: Mapping[str, Any], name: str) -> bool | None:
    value = raw.get(name)
    known = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
    if value is None:
        return None
    if not isinstance(value, (bool, str)) or value not in known:
        raise InvalidOption(f"{name}: true or false", param=name)
    return known[value]


def _read_string(raw: Mapping[str, Any], name: str, *, max_chars: int = 2048) -> str | None:
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > max_chars:
        raise InvalidOption(f"{name}: text of at most {max_chars} characters", param=name)
    return value
