"""Every format a transcript can be written in, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from core.errors import InvalidOption
from core.formats.base import Format
from core.formats.json_format import JSON
from core.formats.srt import SRT
from core.formats.text import TEXT
from core.formats.tsv import TSV
from core.formats.verbose_json import VERBOSE_JSON
from core.formats.vtt import VTT

FORMATS: Mapping[str, Format] = MappingProxyType(
    {known.name: known for known in (JSON, VERBOSE_JSON, TEXT, SRT, VTT, TSV)}
)

__all__ = ["FORMATS", "Format", "get_format"]


def get_format(name: str, *, param: str = "format") -> Format:
    """Return the format called `name`.

    Raises:
        InvalidOption: There is none; the message lists what there is.
    """
    if name not in FORMATS:
        raise InvalidOption(
            f"{param}: {name!r} is not a format; there is {', '.join(FORMATS)}.", param=param
        )
    return FORMATS[name]
