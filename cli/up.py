"""`scriptorium up`: the whole service in one terminal."""

import sys
from contextlib import suppress
from pathlib import Path

from cli.config import join_models, load_settings
from cli.stack import UP, Stack, running_stack
from cli.waiting import Stopped, stop_signals
from core.settings import Settings


def run(
    *,
    host: str,
    port: int,
    data: Path | None,
    models: list[str] | None,
    aligner: str | None,
    workers: int,
    no_auth: bool,
    is_verbose: bool,
) -> int:
    """Serve until a signal comes; returns the exit code, 0 after an orderly end."""
    settings = load_settings(
        data_dir=data,
        models=join_models(models),
        aligner=aligner,
        auth=False if no_auth else None,
    )
    say(f"Starting; data in {settings.data_path}")
    with stop_signals() as stop:
        try:
            with running_stack(
                settings,
                kind=UP,
                host=host,
                port=port,
                workers=workers,
                stop=stop,
                report=report,
                is_verbose=is_verbose,
            ) as stack:
                _greet(stack, settings)
                stop.event.wait()
                say("Stopping; unfinished work goes on at the next start. Again to end at once.")
        except Stopped:
            say("Stopped before everything was ready.")
    say("Stopped.")
    return 0


def say(line: str) -> None:
    """Tell the person at the terminal, if it is still there: a closed one ends nothing half-way."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def report(child: str, line: str) -> None:
    """Show a line of a child."""
    say(f"[{child}] {line}")


def _greet(stack: Stack, settings: Settings) -> None:
    url = stack.running.url
    print(f"Scriptorium is ready at {url}", flush=True)
    if not settings.auth:
        print("No key is needed: everybody on this machine may use it.", flush=True)
        key = ""
    elif stack.first_key is not None:
        print(f"API key (shown this once, kept only as a hash): {stack.first_key}", flush=True)
        key = f' -H "Authorization: Bearer {stack.first_key}"'
    else:
        print("API keys exist already. Another one: scriptorium keys create NAME", flush=True)
        key = ' -H "Authorization: Bearer $KEY"'
    print(
        f"\n  curl{key} -F file=@recording.mp3 {url}/v1/jobs\n"
        "  scriptorium transcribe FOLDER     (in another terminal; uses this server)\n"
        f"  {url}/                  the page;  {url}/docs  the API\n\n"
        "Ctrl-C ends all of it.",
        flush=True,
    )
