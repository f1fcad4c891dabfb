"""The special tokens of one Whisper checkpoint, read from the checkpoint itself.

Ids differ between sizes: timestamps start at 50363 in the English-only models, 50364 in the
multilingual ones and 50365 since large-v3, which has one language more.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer

from adapters.text import strip_control_tokens
from adapters.tokens import spell_tokens
from core import errors
from core.options import TaskKind
from core.transcript import TokenLogprob

TIMESTAMP_STEP_MS = 20
MAX_PROMPT_TOKENS = 223
"""Half the decoder's context less <|startofprev|> (openai-whisper, `decoding.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Ids that steer the decoder, and the tokenizer.

    Attributes:
        languages: Code -> token; empty for an English-only checkpoint.
        tasks: Task -> token; empty for an English-only checkpoint.
        suppress: Never predicted: symbols that are not spoken, and control tokens.
        begin_suppress: Not predicted as the first token: a blank, and the end.
        max_initial_timestamp: Largest step (of 20 ms) that a window's text may start at.
        alignment_heads: (layer, head) pairs whose cross-attention follows the audio.
    """

    tokenizer: Tokenizer
    start: int
    end: int
    previous: int
    no_speech: int
    no_timestamps: int
    languages: Mapping[str, int]
    tasks: Mapping[TaskKind, int]
    suppress: tuple[int, ...]
    begin_suppress: tuple[int, ...]
    max_initial_timestamp: int
    alignment_heads: tuple[tuple[int, int], ...]

    @property
    def timestamp_begin(self) -> int:
        """The id of <|0.00|>."""
        return self.no_timestamps + 1

    @property
    def is_multilingual(self) -> bool:
        """Whether the decoder's prefix names a language and a task."""
        return bool(self.languages)

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Read the generation config and tokenizer in `folder`.

        Raises:
            CheckpointInvalid: A file or a token is missing.
        """
        generation = {**_read(folder / "config.json"), **_read(folder / "generation_config.json")}
        tokenizer = _load_tokenizer(folder)

        def token(content: str) -> int:
            number = tokenizer.token_to_id(content)
            if number is None:
                raise errors.CheckpointInvalid(f"The tokenizer in {folder} has no {content}.")
            return int(number)

        start = token("<|startoftranscript|>")
        no_timestamps = int(generation.get("no_timestamps_token_id") or token("<|notimestamps|>"))
        languages = _languages(generation, tokenizer, start)
        return cls(
            tokenizer=tokenizer,
            start=start,
            end=token("<|endoftext|>"),
            previous=int(generation.get("prev_sot_token_id") or token("<|startofprev|>")),
            # <|nospeech|> in OpenAI's vocabulary, <|nocaptions|> in Hugging Face's: one before.
            no_speech=no_timestamps - 1,
            no_timestamps=no_timestamps,
            languages=languages,
            tasks={task: token(f"<|{task}|>") for task in TaskKind} if languages else {},
            suppress=tuple(generation.get("suppress_tokens") or ()),
            begin_suppress=tuple(generation.get("begin_suppress_tokens") or ()),
            max_initial_timestamp=int(generation.get("max_initial_timestamp_index") or 50),
            alignment_heads=tuple(
                (int(a), int(b)) for a, b in generation.get("alignment_heads") or ()
            ),
        )

    def prefix(
        self, language: str | None, task: TaskKind, *, with_timestamps: bool
    ) -> tuple[int, ...]:
        """Return what precedes the text: start, language, task, and whether times are wanted."""
        tokens = [self.start]
        if self.is_multilingual:
            if language is None:
                raise ValueError("a multilingual checkpoint needs a language")
            tokens += [self.languages[language], self.tasks[task]]
        if not with_timestamps:
            tokens.append(self.no_timestamps)
        return tuple(tokens)

    def encode_prompt(self, prompt: str | None) -> tuple[int, ...]:
        """Return <|startofprev|> and the last tokens of `prompt` that fit; nothing if blank.

        A prompt cannot steer: what looks like a special token is taken out of it.
        """
        text = strip_control_tokens(prompt or "").strip()
        if not text:
            return ()
        tokens = self.tokenizer.encode(f" {text}", add_special_tokens=False).ids
        tokens = [token for token in tokens if token < self.end]
        return (self.previous, *tokens[-MAX_PROMPT_TOKENS:])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`, leaving out special ones and timestamps."""
        spoken = [token for token in tokens if token < self.end]
        return str(self.tokenizer.decode(spoken, skip_special_tokens=True))

    def spell(self, tokens: Sequence[int], logprobs: Sequence[float]) -> tuple[TokenLogprob, ...]:
        """Return tokens of text as bytes, with their log probabilities."""
        pieces = [self.tokenizer.id_to_token(token) or "" for token in tokens]
        return spell_tokens(pieces, logprobs)


def _languages(generation: Mapping[str, Any], tokenizer: Tokenizer, start: int) -> dict[str, int]:
    if generation.get("lang_to_id"):
        return {name.strip("<|>"): int(number) for name, number in generation["lang_to_id"].items()}
    # Older checkpoints have no lang_to_id: languages stand between the start and <|translate|>,
    # and an English-only model has the tokens but was not trained on them.
    if generation.get("is_multilingual") is False or generation["vocab_size"] < start + 1607:
        return {}
    numbers = range(start + 1, tokenizer.token_to_id("<|translate|>") or start)
    return {str(tokenizer.id_to_token(number)).strip("<|>"): number for number in numbers}


def _load_tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if path.is_file():
        return Tokenizer.from_file(str(path))
    from transformers import WhisperTokenizer  # noqa: PLC0415 - slow, and only for old folders

    try:
        tokenizer: Tokenizer = WhisperTokenizer.from_pretrained(folder).backend_tokenizer
    except (OSError, ValueError) as exc:
        raise errors.CheckpointInvalid(f"{folder} has no readable tokenizer: {exc}") from exc
    return tokenizer


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise errors.CheckpointInvalid(f"{path} cannot be read: {exc}") from exc
    return value if isinstance(value, dict) else {}
