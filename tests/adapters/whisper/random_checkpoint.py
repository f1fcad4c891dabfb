"""Small random Whispers whose vocabularies are those of the real sizes.

The text vocabulary is left out (256 tokens stand for it): the special tokens are all there, in
their order, and at ids that differ between the kinds as they do between the real ones.
"""

import json
from pathlib import Path

from transformers import WhisperConfig, WhisperForConditionalGeneration

from adapters.weights.convert import NUM_TIMESTAMPS
from core.languages import LANGUAGES

NUM_TEXT_TOKENS = 256
_NOT_WHISPERS = {"yue", "fil"}  # large-v3 has the first, none has the second
# The byte-level alphabet of GPT-2: printable characters stand for the bytes.
_ALPHABET = [chr(256 + number) for number in range(NUM_TEXT_TOKENS)]


def write_random_checkpoint(folder: Path, *, kind: str) -> int:
    """Write a checkpoint of `kind` "english", "multilingual" or "large-v3".

    Returns:
        The id of <|0.00|>.
    """
    languages = [code for code in LANGUAGES if code not in _NOT_WHISPERS]
    if kind == "large-v3":
        languages.append("yue")
    special = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in languages)]
    special += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
    special += ["<|nospeech|>", "<|notimestamps|>"]
    times = [f"<|{step * 0.02:.2f}|>" for step in range(NUM_TIMESTAMPS)]
    ids = {content: NUM_TEXT_TOKENS + number for number, content in enumerate(special + times)}
    vocab = {char: number for number, char in enumerate(_ALPHABET)}
    config = WhisperConfig(
        vocab_size=NUM_TEXT_TOKENS + len(ids),
        num_mel_bins=128 if kind == "large-v3" else 80,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        decoder_start_token_id=ids["<|startoftranscript|>"],
        eos_token_id=ids["<|endoftext|>"],
        pad_token_id=ids["<|endoftext|>"],
        bos_token_id=ids["<|endoftext|>"],
        init_std=0.3,
    )
    model = WhisperForConditionalGeneration(config)
    model.save_pretrained(folder)
    generation = {
        "is_multilingual": kind != "english",
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "suppress_tokens": [ids["<|startoftranscript|>"], ids["<|nospeech|>"]],
        "begin_suppress_tokens": [ids["<|endoftext|>"]],
    }
    if kind != "english":
        generation["lang_to_id"] = {f"<|{code}|>": ids[f"<|{code}|>"] for code in languages}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    added = [
        {
            "id": number,
            "content": content,
            "special": content in special,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": content not in special,
        }
        for content, number in ids.items()
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    return ids["<|0.00|>"]
