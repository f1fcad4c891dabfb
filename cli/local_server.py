"""A server on this machine for one run of `transcribe`: the one that is up, or our own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cli import data_dir
from cli.data_dir import RunningStack
from cli.local_keys import find_local_key
from cli.stack import TRANSCRIBE, UP, running_stack
from cli.up import report, say
from cli.waiting import Stopped, StopSignal
from core.checkpoints import find_model, parse_models
from core.errors import AlreadyRunning
from core.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """Where it answers, with which key, and whether it ends with this run.

    Attributes:
        model: The name that was asked for, without its source; None is the default.
    """

    running: RunningStack
    key: str | None
    model: str | None
    is_ours: bool


@contextmanager
def local_server(
    settings: Settings, *, model: str | None, stop: StopSignal, is_verbose: bool
) -> Iterator[LocalServer]:
    """Provide a server on the data directory of `settings`.

    Args:
        model: What to serve where that is for us to say: NAME, or NAME=HUB_ID_OR_FOLDER.

    Raises:
        AlreadyRunning: Another `transcribe` has the data directory; its server ends with it.
    """
    if model is not None and find_model(settings, model) is None:
        settings = Settings(data_dir=settings.data_dir, models=model)
        model = parse_models(model)[0].name
    say(f"Starting the service for this run; its logs are in {settings.data_path / 'logs'}")
    with ExitStack() as cleanup:
        try:
            stack = cleanup.enter_context(
                running_stack(
                    settings,
                    kind=TRANSCRIBE,
                    host="127.0.0.1",
                    port=0,
                    workers=1,
                    stop=stop,
                    report=report,
                    is_verbose=is_verbose,
                )
            )
        except AlreadyRunning as exc:
            running = data_dir.find_running(settings.data_path)
            if running is None or running.kind != UP:
                raise AlreadyRunning(
                    f"{exc} With `scriptorium up` running, several can transcribe at once."
                ) from exc
            say(f"Using the server at {running.url}")
            key = find_local_key(settings.data_path)
            yield LocalServer(running=running, key=key, model=model, is_ours=False)
            return
        try:
            yield LocalServer(running=stack.running, key=stack.local_key, model=model, is_ours=True)
        except Stopped:
            say("Stopping; again to end at once.")
            raise
