"""What the model writes, `language English<asr_text>Hello`, and the transcript in it. No torch."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from adapters.qwen3_asr.languages import LANGUAGE_NAMES, find_language_code
from adapters.text import (
    LONGEST_CONTROL_TOKEN,
    REPLACEMENT,
    collapse_character_runs,
    collapse_pattern_runs,
    collapse_repetitions,
    settled_length,
    squeeze_spaces,
    strip_control_tokens,
)

TEXT_TAG = "<asr_text>"
_LANGUAGE_PREFIX = "language "
_LONGEST_HEAD = 48
_BARE_HEADS = frozenset(f"{_LANGUAGE_PREFIX}{name}" for name in (*LANGUAGE_NAMES.values(), "None"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A parsed answer.

    Attributes:
        language: Code of the language the model named, or None ("None", unknown, or forced).
        text: Tidy transcript, free of tags and loops.
        has_loop: Whether a loop was collapsed, which leaves the rest of the text in doubt.
    """

    language: str | None
    text: str
    has_loop: bool = False


def parse_answer(raw: str, *, control_tokens: Iterable[str] = ()) -> Answer:
    """Return what an answer decoded in full says."""
    language, text = split_answer(raw)
    clean = squeeze_spaces(_strip(text, control_tokens))
    text = collapse_repetitions(clean)
    # "<asr_tttttttttttttttttttttext>" is a tag once its loop is collapsed.
    tidy = squeeze_spaces(_strip(text, control_tokens))
    return Answer(language=language, text=tidy, has_loop=text != clean)


def split_answer(raw: str) -> tuple[str | None, str]:
    """Return the language named before the tag, and what follows the tag.

    Without "language …" and the tag everything is transcript: the prompt had them (a forced
    language), or the model left them out. A language's name in the model's own spelling and nothing
    else is an answer that ended before the tag.
    """
    head, tag, text = raw.partition(TEXT_TAG)
    is_told = bool(tag) or head.strip() in _BARE_HEADS
    head = head.lstrip()
    if is_told and len(head) <= _LONGEST_HEAD and head.lower().startswith(_LANGUAGE_PREFIX):
        return find_language_code(head[len(_LANGUAGE_PREFIX) :]), text
    return None, raw


def _strip(text: str, control_tokens: Iterable[str]) -> str:
    """Return `text` without tags and without bytes that spell no character.

    A small model may write the first byte of one character and the last of another.
    """
    return strip_control_tokens(text.replace(REPLACEMENT, ""), (TEXT_TAG, *control_tokens))


@dataclass(slots=True)
class AnswerStream:
    """Turns an answer that grows into pieces of transcript that join to the final text.

    A piece is given only once nothing that follows can take it back: half tags, half characters,
    white space at the end and what may become a loop wait.

    Attributes:
        control_tokens: Spelt-out special tokens that must not show.
        sent: The pieces so far, joined.
    """

    control_tokens: tuple[str, ...] = ()
    sent: str = field(default="", init=False)

    def update(self, raw: str) -> str:
        """Return the next piece; `raw` is the whole answer so far, decoded."""
        return self._advance(self._settled(raw))

    def finish(self, raw: str) -> str:
        """Return the last piece, for the whole answer."""
        return self._advance(parse_answer(raw, control_tokens=self.control_tokens).text)

    def _advance(self, text: str) -> str:
        delta = text[len(self.sent) :] if text.startswith(self.sent) else ""
        self.sent += delta
        return delta

    def _settled(self, raw: str) -> str:
        if TEXT_TAG not in raw and _may_still_name_a_language(raw):
            return ""
        _, text = split_answer(raw)
        text = self._strip_settled(text.rstrip(REPLACEMENT))
        # A space and the repeat of a character may each be the first of many.
        clean = collapse_character_runs(squeeze_spaces(text))
        text = collapse_pattern_runs(clean[: settled_length(clean)])
        return squeeze_spaces(self._strip_settled(text))

    def _strip_settled(self, text: str) -> str:
        """Return `text` without control tokens and without what may yet become one at its end."""
        text = _strip(text, self.control_tokens)
        while (start := self._find_open_control(text)) < len(text):
            text = text[:start]  # when that token goes, one before it may be at the end
        return text

    def _find_open_control(self, text: str) -> int:
        """Return where the end of `text` may be the beginning of a control token."""
        tokens = (TEXT_TAG, *self.control_tokens)
        firsts = {token[0] for token in tokens}
        for start in range(max(0, len(text) - LONGEST_CONTROL_TOKEN), len(text)):
            if text[start] not in firsts:
                continue
            tail = text[start:]
            if tail.startswith("<|") or any(token.startswith(tail) for token in tokens):
                return start
        return len(text)


def _may_still_name_a_language(raw: str) -> bool:
    """Whether the tag may still come: the text so far is (a part of) "language …"."""
    start = raw.lstrip().lower()
    if len(start) > _LONGEST_HEAD + len(TEXT_TAG):
        return False
    return start.startswith(_LANGUAGE_PREFIX) or _LANGUAGE_PREFIX.startswith(start)
