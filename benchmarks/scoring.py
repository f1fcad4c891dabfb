"""Error counts: Whisper's English normaliser; other languages lower-cased without punctuation."""

import unicodedata
from functools import cache

import jiwer
from whisper_normalizer.english import EnglishTextNormalizer

_BY_CHARACTER = frozenset({"zh", "ja", "yue", "th"})


@cache
def _english() -> EnglishTextNormalizer:
    return EnglishTextNormalizer()


def normalise(text: str, language: str) -> str:
    """Return what is compared; characters stand apart where words are written without spaces."""
    if language == "en":
        return str(_english()(text))
    kept = "".join(
        char if unicodedata.category(char)[0] in "LNM" else " "
        for char in unicodedata.normalize("NFKC", text).lower()
    )
    return " ".join("".join(kept.split())) if language in _BY_CHARACTER else " ".join(kept.split())


def count_errors(reference: str, hypothesis: str, language: str) -> tuple[int, int]:
    """Return (errors, reference words or characters)."""
    wanted, heard = normalise(reference, language), normalise(hypothesis, language)
    output = jiwer.process_words(wanted, heard)
    return output.substitutions + output.deletions + output.insertions, len(wanted.split())
