"""How each language of the aligner is cut into units. No torch.

Japanese and Korean need a dictionary: `pip install scriptorium[align-cjk]`.
"""

import importlib

from adapters.aligner.units import Unit, locate_units, split_units

LANGUAGES = frozenset({"zh", "en", "yue", "fr", "de", "it", "ja", "ko", "pt", "ru", "es"})
"""What the aligner was trained on.

Source: transformers 5.24, processing_qwen3_asr.py FORCED_ALIGNER_LANGUAGES.
"""


class TokenizerMissing(Exception):
    """The optional package that cuts this language is not installed."""


def find_units(text: str, language: str | None) -> list[Unit]:
    """Return the alignment units of `text`.

    Raises:
        TokenizerMissing: The language needs a package that is not installed.
    """
    if language == "ja":
        tokens = [str(token) for token in _load("nagisa").tagging(text).words]
    elif language == "ko":
        tokens = [str(token) for token in _load("soynlp.tokenizer").LTokenizer().tokenize(text)]
    else:
        return split_units(text)
    # A tokenizer that normalised characters away cannot be mapped back: units by script instead.
    located = locate_units(text, tokens)
    return split_units(text) if located is None else located


def _load(module: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - optional, without types
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise TokenizerMissing(module) from exc
