"""`scriptorium transcribe`: a folder of recordings in, transcripts out."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.bulk_client import BulkClient
from cli.bulk_runner import BulkRunner
from cli.bulk_steps import BulkSteps
from cli.client import Client, NotNow, Refused
from cli.config import load_settings
from cli.ledger import Ledger, State, fingerprint_of, open_ledger
from cli.outputs import parse_formats, plan_stems, with_format
from cli.progress import ProgressView, Tally
from cli.results import Results
from cli.runner import Runner
from cli.sources import Problem, Source, find_sources
from cli.steps import FileResult, Item, Plan, Steps
from cli.waiting import Stopped, StopSignal, stop_signals
from core.errors import InvalidInput, ServiceUnavailable
from core.options import TranscribeOptions

EXIT_FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The command line of one run, as typed."""

    paths: list[str]
    model: str | None
    language: str | None
    task: str | None
    timestamps: str | None
    prompt: str | None
    formats: str
    output: Path | None
    overwrite: bool
    server: str | None
    key: str | None
    data: Path | None
    as_jsonl: bool
    is_verbose: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """Where the work is done.

    Attributes:
        identity: Names it in fingerprints; the same for all stacks of one data directory.
        revisions: Of the checkpoints, where they are known.
        model: What jobs ask for; None is the default.
        is_embedded: Whether it lives for this run only.
    """

    url: str
    key: str | None
    identity: str
    revisions: dict[str, str]
    model: str | None
    is_embedded: bool


def run(request: Request) -> int:
    """Transcribe; returns the exit code: 0 all well, 1 something failed, 128 + n after signal n."""
    formats = parse_formats(request.formats)
    options = _options(request)
    found = find_sources(request.paths)
    results = Results(as_jsonl=request.as_jsonl, num_others=len(found.others))
    for problem in found.problems:
        results.add(_unreadable(problem))
    with stop_signals() as stop, ExitStack() as cleanup:
        try:
            if found.sources:
                settings = load_settings(data_dir=request.data)
                ledger = cleanup.enter_context(open_ledger(settings.data_path / "transcribe.db"))
                _transcribe(
                    request=request,
                    formats=formats,
                    options=options,
                    sources=found.sources,
                    ledger=ledger,
                    results=results,
                    stop=stop,
                )
        except Stopped:
            results.interrupted = True
    if not found.sources and not found.problems:
        raise InvalidInput("There are no recordings in " + ", ".join(request.paths) + ".")
    results.summarise()
    if results.interrupted:
        return 128 + stop.number
    return EXIT_FAILED if results.num_failed else 0


def _transcribe(
    *,
    request: Request,
    formats: tuple[str, ...],
    options: dict[str, str],
    sources: list[Source],
    ledger: Ledger,
    results: Results,
    stop: StopSignal,
) -> None:
    with ExitStack() as cleanup:
        server = cleanup.enter_context(_server(request, stop))
        client = Client(server.url, server.key, stop.event)
        cleanup.callback(client.close)
        try:
            model = client.get_model(server.model)
        except NotNow as exc:
            raise ServiceUnavailable(str(exc)) from exc
        except Refused as exc:
            raise ServiceUnavailable(f"{server.url} lists no models: {exc}.") from exc
        options = {**options, "model": model}
        output = None if request.output is None else request.output.expanduser().absolute()
        plan = Plan(
            options=options,
            formats=formats,
            fingerprint=fingerprint_of(
                {
                    "server": server.identity,
                    "revision": server.revisions.get(model),
                    "formats": sorted(formats),
                    "output": None if output is None else os.fsencode(output).hex(),
                    **options,
                }
            ),
            with_text=request.as_jsonl,
            deletes_jobs=server.is_embedded,
        )
        items = _plan_items(
            request=request,
            plan=plan,
            sources=sources,
            output=output,
            ledger=ledger,
            results=results,
        )
        tally = Tally(num_files=len(items), started_s=time.monotonic())
        results.tally = tally
        for item in items:
            tally.expect(item.source, item.source.size_bytes)
        if server.is_embedded:
            _set_aside_others(client, items)
        view = cleanup.enter_context(ProgressView(tally))
        results.say = view.say
        steps = Steps(client=client, plan=plan, ledger=ledger)
        common = (steps, ledger, tally, view, stop.event, results.add)
        if request.server is None:
            Runner(*common).run(items)
            return
        bulk = BulkClient(client)
        cleanup.callback(bulk.close)
        BulkRunner(*common, bulk=BulkSteps(bulk=bulk, steps=steps)).run(items)


def _plan_items(
    *,
    request: Request,
    plan: Plan,
    sources: list[Source],
    output: Path | None,
    ledger: Ledger,
    results: Results,
) -> list[Item]:
    def is_foreign(source: Source, stem: Path) -> bool:
        if request.overwrite:
            return False
        targets = (with_format(stem, name) for name in plan.formats)
        return any(os.path.lexists(t) and not ledger.is_ours(t, source) for t in targets)

    items = []
    for source, stem in zip(sources, plan_stems(sources, output, is_foreign), strict=True):
        entry = ledger.find(source, plan.fingerprint)
        if ledger.is_done(source, plan.fingerprint):
            outputs = entry.outputs if entry is not None else ()
            results.add(FileResult(path=source.path, status="skipped", outputs=outputs))
        elif source.size_bytes == 0:
            results.add(
                FileResult(
                    path=source.path,
                    status="failed",
                    error_code="media_empty",
                    error_message="the file is empty",
                )
            )
        else:
            items.append(
                Item(
                    source=source,
                    stem=stem,
                    reference=_reference(source, plan.fingerprint),
                    # A failure is tried anew, not looked up.
                    entry=None if entry is None or entry.state is State.FAILED else entry,
                )
            )
    return items


@contextmanager
def _server(request: Request, stop: StopSignal) -> Iterator[_Server]:
    """Provide the server that was named, the one that runs on the data directory, or a new one."""
    if request.server is not None:
        url = request.server.rstrip("/")
        yield _Server(
            url=url,
            key=request.key,
            identity=url,
            revisions={},
            model=request.model,
            is_embedded=False,
        )
        return
    # What follows starts processes and knows the database: not for a client of a distant server.
    from cli.local_server import local_server

    settings = load_settings(data_dir=request.data)
    with local_server(
        settings, model=request.model, stop=stop, is_verbose=request.is_verbose
    ) as local:
        yield _Server(
            url=local.running.url,
            key=local.key,
            identity=f"local:{settings.data_path}",
            revisions=dict(local.running.revisions),
            model=local.model,
            is_embedded=local.is_ours,
        )


def _options(request: Request) -> dict[str, str]:
    """Return the job's form fields, checked here so that a typo does not fail file by file."""
    given = {
        "language": request.language,
        "task": request.task,
        "timestamps": request.timestamps,
        "prompt": request.prompt,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    TranscribeOptions.parse(chosen)
    return {**chosen, "priority": "bulk"}


def _set_aside_others(client: Client, items: list[Item]) -> None:
    """Cancel what an interrupted run of other recordings left; its own next run resumes it."""
    wanted = {item.reference for item in items}
    for job in client.list_unfinished():
        if job["reference"] not in wanted:
            client.cancel(job["id"])


def _reference(source: Source, fingerprint: str) -> str:
    digest = hashlib.sha256(os.fsencode(source.path))
    digest.update(f"\0{source.size_bytes}\0{source.mtime_ns}\0{fingerprint}".encode())
    return f"transcribe:{digest.hexdigest()[:32]}"


def _unreadable(problem: Problem) -> FileResult:
    return FileResult(
        path=problem.path,
        status="failed",
        error_code="unreadable",
        error_message=problem.reason,
    )
