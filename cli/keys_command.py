"""`scriptorium keys`: who may call."""

from collections.abc import Iterable
from typing import Annotated
from uuid import UUID

import typer

from core.errors import InvalidOption

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is, or what for.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="submit, read or admin; may repeat.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="requests_per_min, active_jobs, queued_audio_s, upload_bytes (numbers) or "
            "priority (the best class of its jobs); may repeat.",
        ),
    ] = None,
) -> None:
    """Create a key and print it; only a hash is kept."""
    from datetime import UTC, datetime

    from cli.config import load_settings
    from cli.database import open_database
    from core.db import unit_of_work
    from lifecycle.keys import create_key
    from lifecycle.limits import check_own_limits

    limits = check_own_limits(_parse_limits(limit or ()))
    with open_database(load_settings()) as sessions, unit_of_work(sessions) as uow:
        row, new = create_key(
            uow, name=name, scopes=scope or ("submit", "read"), now=datetime.now(UTC)
        )
        row.limits = limits
    print(new.secret)


def _parse_limits(given: Iterable[str]) -> dict[str, int | str]:
    """Return `NAME=VALUE` by name, numbers as numbers; whether they make sense shows later."""
    limits: dict[str, int | str] = {}
    for text in given:
        name, has_value, value = text.partition("=")
        if not has_value:
            raise InvalidOption(f"--limit {text!r}: write NAME=VALUE", param="limit")
        limits[name] = int(value) if value.isdecimal() else value
    return limits


@app.command("list")
def list_all() -> None:
    """List keys by their first characters."""
    from cli.config import load_settings
    from cli.database import open_database
    from cli.tables import print_table
    from core.db import unit_of_work
    from lifecycle.keys import list_keys

    with open_database(load_settings()) as sessions, unit_of_work(sessions) as uow:
        rows = [
            (
                str(key.id),
                f"{key.prefix}…",
                key.name,
                ",".join(key.scopes),
                ",".join(f"{name}={value}" for name, value in key.limits.items()),
                key.created_at,
                key.last_used_at,
                key.revoked_at,
            )
            for key in list_keys(uow.session)
        ]
    print_table(("id", "key", "name", "scopes", "limits", "created", "last used", "revoked"), rows)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Id of the key, or its first characters (sk-…).")],
) -> None:
    """End a key's life at once; its jobs stay."""
    from datetime import UTC, datetime

    from cli.config import load_settings
    from cli.database import open_database
    from core.db import UnitOfWork, unit_of_work
    from lifecycle.keys import list_keys, revoke_key

    def find_id(uow: UnitOfWork) -> UUID:
        wanted = key.rstrip("…")
        found = [
            row.id
            for row in list_keys(uow.session)
            if str(row.id) == wanted or (row.prefix.startswith(wanted) and len(wanted) > 3)
        ]
        if len(found) != 1:
            raise InvalidOption(
                f"{len(found)} keys are called {key!r}; `scriptorium keys list` shows all.",
                param="key",
            )
        return found[0]

    with open_database(load_settings()) as sessions, unit_of_work(sessions) as uow:
        row = revoke_key(uow, find_id(uow), now=datetime.now(UTC))
    print(f"revoked {row.prefix}… ({row.name})")
