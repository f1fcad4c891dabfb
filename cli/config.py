"""Settings from the environment and the command line's options."""

from typing import Any

from pydantic import ValidationError

from core.errors import InvalidInput
from core.settings import Settings


def load_settings(**options: Any) -> Settings:  # noqa: ANN401 - one keyword a field
    """Return the settings; an option that is None leaves the environment's value.

    Raises:
        InvalidInput: A value cannot be used; the message names the variable or option.
    """
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as exc:
        first = exc.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            f"SCRIPTORIUM_{field.upper()} or its option: {first['msg']} (got {first['input']!r})"
        ) from exc


def join_models(models: list[str] | None) -> str | None:
    """Return repeated `--model` options as the setting `models` spells them."""
    return ",".join(models) if models else None
