"""The token layout of a transcription request. No torch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from adapters.qwen3_asr.answers import TEXT_TAG
from adapters.text import strip_control_tokens

MAX_CONTEXT_TOKENS = 8192
"""Longest context kept, from its end; the models read 65,536 positions in all."""


@dataclass(frozen=True, slots=True)
class NoSpeech:
    """Where a prompt that forces a language passes over what the model would have said.

    Unforced it names a language, or "None" where nobody speaks.

    Attributes:
        back: Positions from there to the prompt's last.
        token: What "None" begins with.
    """

    back: int
    token: int


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """Token ids before and after the audio's embeddings.

    Attributes:
        was_cut: Whether the context was too long and lost its beginning.
        no_speech: Where it is said that nobody speaks, if a language is forced.
    """

    head: tuple[int, ...]
    tail: tuple[int, ...]
    was_cut: bool = False
    no_speech: NoSpeech | None = None


Encode = Callable[[str], list[int]]


def lay_out_prompt(
    encode: Encode,
    *,
    context: str | None,
    language_name: str | None,
    control_tokens: Iterable[str],
) -> PromptLayout:
    """Return the prompt's tokens; a language name forces it by answering its tag in advance.

    The context is background (names, terms, the text before). It cannot inject control tokens.

    Source: the chat template of Qwen/Qwen3-ASR-1.7B-hf, which the tests compare with.
    """
    clean = strip_control_tokens(context or "", (TEXT_TAG, *control_tokens))
    opening = encode("<|im_start|>system\n")
    head = encode(f"<|im_start|>system\n{clean}")
    was_cut = len(head) - len(opening) > MAX_CONTEXT_TOKENS
    if was_cut:
        head = opening + head[-MAX_CONTEXT_TOKENS:]
    # Special tokens separate the pieces, so that each may be tokenised by itself.
    head = head + encode("<|im_end|>\n<|im_start|>user\n<|audio_start|>")
    forced = f"language {language_name}{TEXT_TAG}" if language_name else ""
    tail = encode(f"<|audio_end|><|im_end|>\n<|im_start|>assistant\n{forced}")
    no_speech = _find_no_speech(encode, forced) if forced else None
    return PromptLayout(tuple(head), tuple(tail), was_cut, no_speech)


def _find_no_speech(encode: Encode, forced: str) -> NoSpeech:
    num_before = len(encode("language"))
    return NoSpeech(
        back=len(encode(forced)) - num_before, token=encode("language None")[num_before]
    )
