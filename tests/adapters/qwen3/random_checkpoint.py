"""A random Qwen3-ASR of real time and mel geometry: what holds for it holds for any weights.

With the default `initializer_range` (0.02 in each of the two sub-configs) the logits hardly depend
on the audio and no comparison bites; `test_the_random_checkpoint_hears` guards that.
"""

from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    GenerationConfig,
    Qwen3ASRForConditionalGeneration,
    Qwen3ASRProcessor,
)


def write_random_checkpoint(folder: Path, *, like: Path, seed: int) -> Path:
    """Write a checkpoint with the tokenizer and processor of `like` and other, random weights.

    Its text model has other widths and grouped keys, its encoder more channels than `like`'s; the
    frames, pieces, windows and tokens are those of the released models.
    """
    config = AutoConfig.from_pretrained(like)
    for part, changes in (
        (config.audio_config, {"d_model": 64, "encoder_layers": 2, "encoder_ffn_dim": 96}),
        (config.text_config, {"num_key_value_heads": 1, "head_dim": 32}),
    ):
        for name, value in {**changes, "initializer_range": 0.25}.items():
            setattr(part, name, value)
    config.initializer_range = 0.25
    # Tied embeddings would make a random model repeat its last token for ever.
    config.tie_word_embeddings = config.text_config.tie_word_embeddings = False
    torch.manual_seed(seed)
    model = Qwen3ASRForConditionalGeneration(config).eval()
    for layer in model.model.language_model.layers:
        layer.self_attn.q_norm.weight.data.fill_(4.0)  # sharp attention: every window counts
    model.generation_config = GenerationConfig.from_pretrained(like)
    model.save_pretrained(folder)
    Qwen3ASRProcessor.from_pretrained(like).save_pretrained(folder)
    return folder
