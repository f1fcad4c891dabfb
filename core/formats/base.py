"""What a transcript format is. Add one: write a file with a `Format`, name it in `FORMATS`."""

from collections.abc import Callable
from dataclasses import dataclass

from core.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way to write a transcript.

    Attributes:
        name: As in `?format=` and `response_format`.
        media_type: Value of Content-Type, charset included where it is text.
        extension: File name suffix, dot included.
        render: Pure; the same transcript gives the same text.
    """

    name: str
    media_type: str
    extension: str
    render: Callable[[Transcript], str]
