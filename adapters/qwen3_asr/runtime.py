"""A loaded Qwen3-ASR checkpoint: windows to answers. The adapter's heavy half; imports torch."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from transformers import AutoConfig, Qwen3ASRForConditionalGeneration, Qwen3ASRProcessor

from adapters.base import LoadOptions, Samples
from adapters.qwen3_asr.answers import TEXT_TAG, split_answer
from adapters.qwen3_asr.decoding import Decoded, Decoder, ReadPrompts, Row
from adapters.qwen3_asr.encoding import PackedEncoder
from adapters.qwen3_asr.features import LogMel
from adapters.qwen3_asr.languages import LANGUAGE_NAMES
from adapters.qwen3_asr.prompts import PromptLayout, lay_out_prompt
from adapters.tokens import spell_tokens
from core import errors
from core.transcript import TokenLogprob

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_LAYOUT_TOKENS = ("<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", TEXT_TAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One window, in the model's terms."""

    samples: Samples
    prompt: PromptLayout
    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0


def choose_dtype(name: str, device: str) -> torch.dtype:
    """Return the number format to load in; "auto" is float32 on CPUs and bfloat16 elsewhere.

    Raises:
        CheckpointInvalid: The format is not one this family runs in.
    """
    if name == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if name not in _DTYPES:
        raise errors.CheckpointInvalid(f"Qwen3-ASR does not run in {name}; use {sorted(_DTYPES)}")
    return _DTYPES[name]


def load_pretrained(model_class: Any, options: LoadOptions) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the model, ready to run, and its processor.

    Raises:
        CheckpointInvalid: The folder lacks or spoils a file.
    """
    if options.num_threads:
        torch.set_num_threads(options.num_threads)
    dtype = choose_dtype(options.dtype, options.device)
    try:
        config = AutoConfig.from_pretrained(options.folder, local_files_only=True)
        model = model_class.from_pretrained(
            options.folder, config=config, dtype=dtype, local_files_only=True
        )
        processor = Qwen3ASRProcessor.from_pretrained(options.folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise errors.CheckpointInvalid(f"{options.folder}: {exc}") from exc
    # A folder without tokenizer.json loads, with a tokenizer that knows no word.
    for token in _LAYOUT_TOKENS:
        if len(processor.tokenizer.encode(token, add_special_tokens=False)) != 1:
            raise errors.CheckpointInvalid(f"{options.folder}: the tokenizer lacks {token}")
    return model.to(torch.device(options.device)).eval(), processor


def release(model: Any) -> None:  # noqa: ANN401
    """Free the memory of a model's weights, whoever still holds the model."""
    is_cuda = model.device.type == "cuda"
    model.to("meta")
    if is_cuda:
        torch.cuda.empty_cache()


class Qwen3Runtime:
    """Features, encoder and decoder of one checkpoint, put together.

    Attributes:
        control_tokens: Spelt-out tokens that neither a prompt nor a transcript may contain.
    """

    def __init__(self, model: Any, processor: Any, end_tokens: Sequence[int]) -> None:  # noqa: ANN401
        self.model = model
        self.mel = LogMel(processor.feature_extractor, model.device)
        self.encoder = PackedEncoder(model.model)
        self.decoder = Decoder(model, end_tokens)
        self._tokenizer = processor.tokenizer
        self.control_tokens = tuple(sorted(self._tokenizer.get_added_vocab()))
        self._special = frozenset(self._tokenizer.get_added_vocab().values())
        self._tag = self._tokenizer.convert_tokens_to_ids(TEXT_TAG)

    @classmethod
    def load(cls, options: LoadOptions) -> Self:
        """Read the weights; takes seconds to minutes.

        Raises:
            CheckpointInvalid: The folder is not a Qwen3-ASR checkpoint.
        """
        model, processor = load_pretrained(Qwen3ASRForConditionalGeneration, options)
        return cls(model, processor, _read_end_tokens(options.folder, model.config))

    def encode_text(self, text: str) -> list[int]:
        """Return token ids, special tokens included where spelt out."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode_text(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens` without special tokens; the answer's tag stays."""
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def spell_answer(self, answer: Decoded) -> tuple[TokenLogprob, ...]:
        """Return the tokens of an answer's transcript: what follows the tag, special ones left out.

        They are as the model wrote them, which the tidied text may differ from.
        """
        start = 0
        raw = self.decode_text(answer.tokens)
        if split_answer(raw)[1] != raw and self._tag in answer.tokens:
            start = answer.tokens.index(self._tag) + 1
        spoken = [
            (token, logprob)
            for token, logprob in zip(answer.tokens[start:], answer.logprobs[start:], strict=True)
            if token not in self._special
        ]
        pieces = self._tokenizer.convert_ids_to_tokens([token for token, _ in spoken])
        return spell_tokens(pieces, [logprob for _, logprob in spoken])

    def lay_out(self, *, context: str | None, language_name: str | None) -> PromptLayout:
        """Return the tokens around the audio."""
        return lay_out_prompt(
            self.encode_text,
            context=context,
            language_name=language_name,
            control_tokens=self.control_tokens,
        )

    @torch.inference_mode()
    def answer(
        self, requests: Sequence[Request], *, sink: Callable[[int, int], None] | None = None
    ) -> list[Decoded]:
        """Transcribe a batch; `sink` gets (index, token) as they are decoded.

        Raises:
            DeviceOutOfMemory: The batch is too large.
        """
        try:
            return self.decoder.answer(self._rows(requests), sink=sink)
        except torch.OutOfMemoryError as exc:
            raise errors.DeviceOutOfMemory(f"{len(requests)} windows") from exc

    @torch.inference_mode()
    def score_languages(self, requests: Sequence[Request]) -> list[dict[str, float]]:
        """Return for each window the probability of every language's name as the answer's start.

        Raises:
            DeviceOutOfMemory: The batch is too large.
        """
        try:
            prompts = self.decoder.read(self._rows(requests))
            return [self._score_names(prompts, row) for row in range(len(requests))]
        except torch.OutOfMemoryError as exc:
            raise errors.DeviceOutOfMemory(f"{len(requests)} windows") from exc

    def close(self) -> None:
        """Free the device's memory; the runtime is of no use afterwards."""
        release(self.model)

    def _rows(self, requests: Sequence[Request]) -> list[Row]:
        clips = [self.mel.features(request.samples) for request in requests]
        return [
            Row(
                embeddings=torch.cat(
                    [
                        self.decoder.embed(request.prompt.head),
                        audio.to(self.model.dtype),
                        self.decoder.embed(request.prompt.tail),
                    ]
                ),
                max_new_tokens=request.max_new_tokens,
                temperature=request.temperature,
                seed=request.seed,
                no_speech=request.prompt.no_speech,
            )
            for request, audio in zip(requests, self.encoder.encode(clips), strict=True)
        ]

    def _score_names(self, prompts: ReadPrompts, row: int) -> dict[str, float]:
        """Return P(language) from log P(`language NAME<asr_text>`) after a prompt."""
        names = [f"language {name}{TEXT_TAG}" for name in LANGUAGE_NAMES.values()]
        answers = [self.encode_text(name) for name in names]
        scores = self.decoder.score(prompts.keys.row(row), answers, prompts.logits[row])
        return dict(zip(LANGUAGE_NAMES, torch.softmax(scores, dim=-1).tolist(), strict=True))


def _read_end_tokens(folder: Path, config: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Return the ids that end an answer; the generation config's win over the model's."""
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text()) if path.is_file() else {}
    ends = generation.get("eos_token_id", config.eos_token_id)
    return tuple(ends) if isinstance(ends, list | tuple) else (int(ends),)
