"""`scriptorium models`: which checkpoints are served, and getting them."""

import sys
from typing import Annotated

import typer

from core.checkpoints import ServedModel

app = typer.Typer(help="List and fetch checkpoints.", no_args_is_help=True)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME[=HUB_ID_OR_FOLDER]", show_default="all that are served"),
]


@app.command("list")
def list_models() -> None:
    """List the served checkpoints, the default first, and names that can be fetched."""
    from cli.checkpoints import find_local
    from cli.config import load_settings
    from cli.tables import print_table
    from core.checkpoints import KNOWN_MODELS, served_models

    settings = load_settings()
    rows = []
    for model in served_models(settings):
        found = find_local(model, settings.data_path)
        rows.append(
            (
                model.name,
                model.source,
                found.adapter if found else "not fetched",
                found.revision if found else None,
                str(found.folder) if found else None,
            )
        )
    print_table(("name", "source", "adapter", "revision", "folder"), rows)
    print(f"\nKnown names: {', '.join(KNOWN_MODELS)}", file=sys.stderr)


@app.command()
def fetch(
    names: Names = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what is there as one JSON line.")
    ] = False,
) -> None:
    """Download what is missing, check it and make it ready to load; nothing to do the next time."""
    import json
    from dataclasses import asdict

    from cli.checkpoints import fetch_aligner, fetch_local
    from cli.config import load_settings
    from core.checkpoints import aligner_model, parse_models, served_models

    settings = load_settings()
    wanted: tuple[ServedModel, ...] = (
        parse_models(",".join(names)) if names else served_models(settings)
    )
    found = [fetch_local(model, settings.data_path) for model in wanted]
    if not names and (aligner := aligner_model(settings)) is not None:
        fetch_aligner(aligner, settings.data_path)
    if as_json:
        print(
            json.dumps(
                [asdict(checkpoint) | {"folder": str(checkpoint.folder)} for checkpoint in found]
            )
        )
        return
    for checkpoint in found:
        print(f"{checkpoint.name}: {checkpoint.folder} (revision {checkpoint.revision})")
