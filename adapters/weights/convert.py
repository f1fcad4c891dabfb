"""Writing a CTranslate2 Whisper as an ordinary Hugging Face folder.

The folder loads with `WhisperForConditionalGeneration.from_pretrained` and `WhisperProcessor`.
Values are written as they are stored: float16 in, float16 out.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from adapters.weights.ctranslate2 import (
    SourceModel,
    Tensor,
    read_model_bin,
    scalar,
    to_hugging_face,
)
from core import errors

Json = dict[str, Any]

NUM_TIMESTAMPS = 1501
"""<|0.00|> … <|30.00|> in steps of 0.02 s: the last tokens of every Whisper vocabulary."""

MULTILINGUAL_VOCABULARY = 51_865
"""Smallest vocabulary of a multilingual Whisper (openai-whisper, `model.py`, `is_multilingual`)."""

# Normalisation of WhisperFeatureExtractor: 25 ms windows every 10 ms, 30 s (openai-whisper,
# `audio.py`).
_FEATURES: Json = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "processor_class": "WhisperProcessor",
    "sampling_rate": 16_000,
    "hop_length": 160,
    "n_fft": 400,
    "chunk_length": 30,
    "n_samples": 480_000,
    "nb_max_frames": 3000,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": False,
}


def convert_whisper(
    model_bin: bytes | memoryview, config: Json, tokenizer: Json, folder: Path
) -> None:
    """Write the model whose CTranslate2 files are given into `folder`, which exists.

    Args:
        model_bin: The bytes of `model.bin`.
        config: CTranslate2's `config.json`: alignment heads and suppressed tokens.
        tokenizer: `tokenizer.json`, with or without the timestamp tokens.

    Raises:
        CheckpointInvalid: The files are damaged or contradict one another.
    """
    source = read_model_bin(model_bin)
    tensors = to_hugging_face(source)
    tokenizer = complete_tokenizer(
        tokenizer, vocab_size=len(tensors["model.decoder.embed_tokens.weight"])
    )
    special = {token["content"]: int(token["id"]) for token in tokenizer["added_tokens"]}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    _write(folder / "config.json", _model_config(source, tensors, special))
    _write(folder / "generation_config.json", _generation_config(config, special, tensors))
    features = {**_FEATURES, "feature_size": tensors["model.encoder.conv1.weight"].shape[1]}
    _write(folder / "preprocessor_config.json", features)
    _write(folder / "tokenizer.json", tokenizer)
    _write(folder / "tokenizer_config.json", _tokenizer_config(tokenizer))


def complete_tokenizer(tokenizer: Json, *, vocab_size: int) -> Json:
    """Return `tokenizer` with all timestamp tokens; older CTranslate2 models leave them out.

    Raises:
        CheckpointInvalid: Its ids are not exactly 0 … vocab_size - 1.
    """
    added = {int(token["id"]): token for token in tokenizer["added_tokens"]}
    first = vocab_size - NUM_TIMESTAMPS
    for step in range(NUM_TIMESTAMPS):
        content = f"<|{step * 0.02:.2f}|>"
        timestamp = {
            "id": first + step,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": True,
            "special": False,
        }
        if added.setdefault(first + step, timestamp)["content"] != content:
            raise errors.CheckpointInvalid(f"Token {first + step} is not {content}.")
    if added.get(first - 1, {}).get("content") != "<|notimestamps|>":
        raise errors.CheckpointInvalid("The timestamps do not follow <|notimestamps|>.")
    ids = sorted({*tokenizer["model"]["vocab"].values(), *added})
    if ids != list(range(vocab_size)):
        raise errors.CheckpointInvalid("The tokenizer does not cover the vocabulary.")
    return {**tokenizer, "added_tokens": [added[token] for token in sorted(added)]}


def _model_config(
    source: SourceModel, tensors: Mapping[str, Tensor], special: Mapping[str, int]
) -> Json:
    embeddings = tensors["model.decoder.embed_tokens.weight"]
    end = special["<|endoftext|>"]
    config: Json = {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "vocab_size": embeddings.shape[0],
        "d_model": embeddings.shape[1],
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "max_source_positions": tensors["model.encoder.embed_positions.weight"].shape[0],
        "max_target_positions": tensors["model.decoder.embed_positions.weight"].shape[0],
        "activation_function": "gelu",
        "dropout": 0.0,
        "is_encoder_decoder": True,
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": special["<|startoftranscript|>"],
        "dtype": np.dtype(embeddings.dtype).name,
    }
    for side in ("encoder", "decoder"):
        layers = {
            name.split(".")[3] for name in tensors if name.startswith(f"model.{side}.layers.")
        }
        config[f"{side}_layers"] = len(layers)
        config[f"{side}_attention_heads"] = scalar(source, f"{side}/num_heads")
        config[f"{side}_ffn_dim"] = tensors[f"model.{side}.layers.0.fc1.weight"].shape[0]
    config["num_hidden_layers"] = config["encoder_layers"]
    return config


def _generation_config(
    config: Json, special: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> Json:
    positions = tensors["model.decoder.embed_positions.weight"].shape[0]
    start, end = special["<|startoftranscript|>"], special["<|endoftext|>"]
    multilingual = len(tensors["model.decoder.embed_tokens.weight"]) >= MULTILINGUAL_VOCABULARY
    generation: Json = {
        "alignment_heads": config["alignment_heads"],
        "begin_suppress_tokens": config["suppress_ids_begin"],
        "bos_token_id": end,
        "decoder_start_token_id": start,
        "eos_token_id": end,
        "is_multilingual": multilingual,
        "max_initial_timestamp_index": 50,
        "max_length": positions,
        "no_timestamps_token_id": special["<|notimestamps|>"],
        "pad_token_id": end,
        "prev_sot_token_id": special["<|startofprev|>"],
        "return_timestamps": False,
        "suppress_tokens": config["suppress_ids"],
    }
    if multilingual:
        # Languages stand between <|startoftranscript|> and <|translate|>.
        generation["lang_to_id"] = {
            token: number
            for token, number in special.items()
            if start < number < special["<|translate|>"]
        }
        if sorted(config["lang_ids"]) != sorted(generation["lang_to_id"].values()):
            raise errors.CheckpointInvalid("config.json and tokenizer.json name other languages.")
        generation["task_to_id"] = {
            task: special[f"<|{task}|>"] for task in ("transcribe", "translate")
        }
        # As in the published checkpoints: without it transformers leaves the task token out of
        # the prompt when a call names neither language nor task, and the text loops.
        generation["forced_decoder_ids"] = [[1, None], [2, special["<|transcribe|>"]]]
    return generation


def _tokenizer_config(tokenizer: Json) -> Json:
    end = "<|endoftext|>"
    special = [token["content"] for token in tokenizer["added_tokens"] if token["special"]]
    return {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in tokenizer["added_tokens"]
        },
        "additional_special_tokens": [content for content in special if content != end],
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": end,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": 1024,
        "return_attention_mask": False,
    }


def _write(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
