"""The `scriptorium` command. Commands import what they need when they run."""

import errno
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli import jobs_command, keys_command, models_command
from core.errors import ScriptoriumError

app = typer.Typer(
    name="scriptorium",
    help="Turns a pile of recordings into transcripts and never loses one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(keys_command.app, name="keys")
app.add_typer(jobs_command.app, name="jobs")
app.add_typer(models_command.app, name="models")

Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every network.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Data directory.", show_default="$SCRIPTORIUM_DATA_DIR"),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME[=HUB_ID_OR_FOLDER]",
        help="Checkpoint to serve; may repeat, the first is the default.",
        show_default="whisper-base",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show all log lines.")]


@app.callback()
def prepare() -> None:
    """Send what libraries log to stderr; stdout belongs to the command's answer."""
    from core.logging import configure_logging

    configure_logging("warning", "console")


@app.command()
def up(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data: Data = None,
    model: Models = None,
    aligner: Annotated[
        str | None, typer.Option(metavar="HUB_ID_OR_FOLDER", help="Qwen3 forced aligner.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Recognising processes for each kind of model.")
    ] = 1,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="No key needed; on loopback only.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Serve everything on this machine until Ctrl-C."""
    from cli import up as command

    raise typer.Exit(
        command.run(
            host=host,
            port=port,
            data=data,
            models=model,
            aligner=aligner,
            workers=workers,
            no_auth=no_auth,
            is_verbose=verbose,
        )
    )


@app.command()
def transcribe(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders or glob patterns.")
    ],
    *,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME[=HUB_ID_OR_FOLDER]", help="Checkpoint to use."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Code, `auto` or `multi` (each window its own).")
    ] = None,
    task: Annotated[str | None, typer.Option(help="transcribe, or translate to English.")] = None,
    timestamps: Annotated[
        str | None, typer.Option(help="segment, word or none (word times go into json).")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="Names and terms to expect.")] = None,
    formats: Annotated[str, typer.Option("--format", help="Of txt,srt,vtt,json,tsv.")] = "txt",
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Mirror the folders there.", show_default="beside media"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of others as well.")
    ] = False,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Use a server elsewhere.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(envvar="SCRIPTORIUM_API_KEY", help="API key for --server."),
    ] = None,
    data: Data = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="One JSON object a file on stdout.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Transcribe recordings; files that are done are skipped, interrupted runs go on."""
    from cli import transcribe as command

    request = command.Request(
        paths=paths,
        model=model,
        language=language,
        task=task,
        timestamps=timestamps,
        prompt=prompt,
        formats=formats,
        output=output,
        overwrite=overwrite,
        server=server,
        key=key,
        data=data,
        as_jsonl=jsonl,
        is_verbose=verbose,
    )
    raise typer.Exit(command.run(request))


@app.command()
def listen(
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A recording, or - for raw PCM16 on stdin.")
    ],
    *,
    rate: Annotated[int, typer.Option(help="Of stdin: 16000, 24000 or 48000 Hz, mono.")] = 16_000,
    model: Annotated[str | None, typer.Option(help="Model of the server.")] = None,
    language: Annotated[str | None, typer.Option(help="Code; detected by default.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Names and terms to expect.")] = None,
    speed: Annotated[
        float, typer.Option(min=0.1, help="Play a recording so many times as fast.")
    ] = 1.0,
    fast: Annotated[
        bool, typer.Option("--fast", help="Play it as fast as the server takes it.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A server.", show_default="the one that is up"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="SCRIPTORIUM_API_KEY", help="API key for --server.")
    ] = None,
    data: Data = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print the server's events, one JSON object a line.")
    ] = False,
) -> None:
    """Play a recording or stdin into a live session and print the text as it comes."""
    from cli import listen as command

    request = command.Request(
        source=source,
        rate_hz=rate,
        model=model,
        language=language,
        prompt=prompt,
        speed=None if fast else speed,
        server=server,
        key=key,
        data=data,
        as_jsonl=jsonl,
    )
    raise typer.Exit(command.run(request))


@app.command()
def api(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    fd: Annotated[int | None, typer.Option(hidden=True, help="Inherited bound socket.")] = None,
) -> None:
    """Run the HTTP process alone."""
    from cli import services

    services.run_api(host=host, port=port, fd=fd)


@app.command()
def worker(
    *,
    queues: Annotated[
        str | None,
        typer.Option(help="Comma-separated: media, delivery, maintenance, asr.<adapter>."),
    ] = None,
    model: Models = None,
    name: Annotated[str | None, typer.Option(help="Name in logs, unique on a machine.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Tasks at a time, where that is free to choose.")
    ] = None,
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="Give way to other processes, as nice(1) has it.")
    ] = 0,
) -> None:
    """Run one Celery worker; without --queues it does every kind of work."""
    from cli import services

    raise typer.Exit(
        services.run_worker(
            queues=queues, models=model, name=name, concurrency=concurrency, nice=nice
        )
    )


@app.command()
def beat() -> None:
    """Run the clock that starts recovery and clean-up."""
    from cli import services

    services.run_beat()


@app.command()
def migrate(
    *,
    forget_secrets: Annotated[
        bool,
        typer.Option(
            "--forget-secrets",
            help="Give up for good what no key of seals opens, and say what that was.",
        ),
    ] = False,
) -> None:
    """Create the database's tables, or bring them up to date."""
    from cli import services

    services.run_migrate(is_forgetting=forget_secrets)


@app.command()
def doctor() -> None:
    """Print every setting and its source, and check what the service needs."""
    from cli import doctor as command

    raise typer.Exit(command.run())


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print(installed("scriptorium"))


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and exit code 1."""
    try:
        app()
    except ScriptoriumError as exc:
        print(f"error: {exc}", file=sys.stderr)
        sys.exit(1)
    except OSError as exc:
        if exc.errno not in (errno.ENOSPC, errno.EIO) or exc.filename is not None:
            raise
        # Of a file it would have the name.
        print(f"error: the output cannot be written: {exc.strerror}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
