"""The names Qwen3-ASR speaks of languages with, and their codes."""

# Source: transformers 5.24, models/qwen3_asr/processing_qwen3_asr.py LANGUAGE_CODE_TO_NAME.
LANGUAGE_NAMES = {
    "ar": "Arabic", "yue": "Cantonese", "zh": "Chinese", "cs": "Czech", "da": "Danish",
    "nl": "Dutch", "en": "English", "fil": "Filipino", "fi": "Finnish", "fr": "French",
    "de": "German", "el": "Greek", "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian",
    "it": "Italian", "ja": "Japanese", "ko": "Korean", "mk": "Macedonian", "ms": "Malay",
    "fa": "Persian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "es": "Spanish", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "vi": "Vietnamese",
}  # fmt: skip

_CODES = {name.lower(): code for code, name in LANGUAGE_NAMES.items()}
_ALIASES = {"tl": "fil"}


def find_language_name(code: str) -> str | None:
    """Return "English" for "en"; None for a language the family does not know."""
    return LANGUAGE_NAMES.get(_ALIASES.get(code, code))


def find_language_code(name: str) -> str | None:
    """Return "en" for "English"; the first one's of "Chinese,English"; None for "None"."""
    return _CODES.get(name.replace("/", ",").split(",")[0].strip().lower())
