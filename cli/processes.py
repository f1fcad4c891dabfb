"""Which processes a whole Scriptorium on one machine consists of."""

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import product

from cli.supervisor import ChildSpec
from core.queues import DELIVERY_QUEUE, MAINTENANCE_QUEUE, MEDIA_QUEUE, asr_queue
from core.settings import Settings, child_environment

FRONT, WORK, BROKER = range(3)
"""Order of ending: first what takes work in, then what does it, then what carries messages."""

_API_GRACE_S = 10.0
_WORKER_GRACE_S = 20.0

# Decoding is ten times as fast as recognition, and a third busy thread makes two of torch's crawl:
# beside it the first window took seven seconds instead of one. Nicer than this, batches stay small.
_MEDIA_NICE = "5"
_FIRST_WORDS_S = "3"


def own_command(*arguments: str) -> tuple[str, ...]:
    """Return the command line that runs this program again.

    `-P`: the working directory must not be searched for modules; it may hold a `models` folder.
    """
    return (sys.executable, "-P", "-m", "cli.main", *arguments)


def plan_processes(
    settings: Settings, *, adapters: Sequence[str], workers: int, listen_fd: int
) -> tuple[ChildSpec, ...]:
    """Return every process but the broker.

    Deliveries and maintenance have a worker of their own, so that hours of decoding in the media
    worker delay neither a webhook nor the recovery of lost work.

    Args:
        adapters: Names of the adapters of the served checkpoints.
        workers: Recognising processes for each adapter; they share the CPU's cores, and GPUs are
            dealt out to them unless the settings name a device.
        listen_fd: The API's bound socket.
    """
    environment = child_environment(settings, log_format="json")
    threads = settings.threads or max(1, num_cores() // workers)
    media = child_environment(settings, log_format="json", first_words_s=_FIRST_WORDS_S)
    front = (
        _child(
            "api",
            "api",
            "--fd",
            str(listen_fd),
            environment=environment,
            stage=FRONT,
            grace_s=_API_GRACE_S,
            pass_fds=(listen_fd,),
        ),
        _child("beat", "beat", environment=environment, stage=FRONT, grace_s=_API_GRACE_S),
    )
    work = [
        _worker("media", MEDIA_QUEUE, media, "--nice", _MEDIA_NICE),
        _worker("upkeep", f"{DELIVERY_QUEUE},{MAINTENANCE_QUEUE}", environment),
    ]
    for place, (adapter, number) in enumerate(product(adapters, range(1, workers + 1))):
        name = f"asr-{adapter}" if number == 1 else f"asr-{adapter}-{number}"
        device = f"auto:{place}" if settings.device == "auto" else settings.device
        recognising = child_environment(
            settings, log_format="json", threads=str(threads), device=device
        )
        work.append(_worker(name, asr_queue(adapter), recognising))
    return (*front, *work)


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _worker(name: str, queues: str, environment: Mapping[str, str], *options: str) -> ChildSpec:
    return _child(
        name,
        "worker",
        "--name",
        name,
        "--queues",
        queues,
        *options,
        environment=environment,
        stage=WORK,
        grace_s=_WORKER_GRACE_S,
    )


def _child(
    name: str,
    *arguments: str,
    environment: Mapping[str, str],
    stage: int,
    grace_s: float,
    pass_fds: tuple[int, ...] = (),
) -> ChildSpec:
    return ChildSpec(
        name=name,
        command=own_command(*arguments),
        environment=environment,
        stage=stage,
        grace_s=grace_s,
        pass_fds=pass_fds,
    )
