"""A hundred listeners that drop at random while Redis is killed and comes back: nothing is lost."""

import asyncio
import itertools
import json
import random
from contextlib import aclosing, suppress
from pathlib import Path
from uuid import UUID

import httpx

from core.transcript import Segment
from tests.integration.api.conftest import make_context, make_key
from tests.integration.api.fakes import RecordingQueue, complete, start, tell
from tests.integration.api.servers import Server
from tests.integration.api.test_events import upload
from tests.support.processes import Process, free_port, running, wait_for
from tests.support.stack import environment, scriptorium
from tests.support.valkey import ValkeyServer

NUM_LISTENERS = 100
NUM_SEGMENTS = 80
NUM_EVENTS = NUM_SEGMENTS + 4
KILLS = {20: 28, 50: 62}
"""Before which segment Redis is killed, and before which it is there again."""

PAUSE_S = 0.03
MOST_PATIENCE_S = 0.8
DEADLINE_S = 120.0


async def listen(client: httpx.AsyncClient, url: str, seed: int) -> tuple[list[int], int]:
    """Read to the end, dropping the line at random moments; return all `seq`, and the drops."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    seqs: list[int] = []
    for num_drops in itertools.count():
        headers = {"Last-Event-ID": str(seqs[-1])} if seqs else {}
        async with client.stream("GET", url, headers=headers) as answer:
            if answer.status_code == 204:
                return seqs, num_drops
            assert answer.status_code == 200, await answer.aread()
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.0, MOST_PATIENCE_S)):
                    if await read(answer, seqs):
                        return seqs, num_drops
        await asyncio.sleep(chance.uniform(0.0, 0.2))
    raise AssertionError


async def read(answer: httpx.Response, seqs: list[int]) -> bool:
    """Note the numbers that come; return whether the last was the job's."""
    async with aclosing(answer.aiter_lines()) as lines:
        async for line in lines:
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                seqs.append(event["seq"])
                if event["type"] == "job.completed":
                    return True
    return False


def test_a_hundred_that_drop_while_redis_is_killed_get_every_event_once_in_order(
    postgres_url: str, settings, tmp_path: Path
):
    from core.db import make_engine, make_sessions

    engine = make_engine(postgres_url)
    port = free_port()
    with ValkeyServer(tmp_path / "valkey") as valkey:
        chosen = settings(redis_url=valkey.url, database_url=postgres_url)
        context = make_context(make_sessions(engine), chosen, RecordingQueue())
        server = Server(url=f"http://127.0.0.1:{port}", key=make_key(context))
        env = environment(
            SCRIPTORIUM_REDIS_URL=valkey.url,
            SCRIPTORIUM_DATABASE_URL=postgres_url,
            SCRIPTORIUM_DATA_DIR=str(chosen.data_path),
        )
        command = scriptorium("api", "--port", str(port))
        with running(Process("api", command, log=tmp_path / "api.log", env=env)) as process:
            wait_for(
                lambda: is_ready(server), what="the API is ready", process=process, timeout_s=60
            )
            job_id = upload(server)
            segments = tuple(
                Segment(text=f"Phrase {i}.", start_ms=i * 20, end_ms=i * 20 + 10)
                for i in range(NUM_SEGMENTS)
            )

            async def publish() -> None:
                for index, segment in enumerate(segments):
                    if index in KILLS:
                        await asyncio.to_thread(valkey.crash)
                    if index in KILLS.values():
                        await asyncio.to_thread(valkey.start)
                    await asyncio.to_thread(tell, context, UUID(job_id), segment)
                    await asyncio.sleep(PAUSE_S)
                await asyncio.to_thread(complete, context, UUID(job_id), segments)

            async def run() -> list[tuple[list[int], int]]:
                url = f"{server.url}/v1/jobs/{job_id}/events"
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
                async with (
                    httpx.AsyncClient(
                        headers=server.headers, limits=limits, timeout=60, trust_env=False
                    ) as client,
                    asyncio.timeout(DEADLINE_S),
                    asyncio.TaskGroup() as tasks,
                ):
                    listeners = [
                        tasks.create_task(listen(client, url, seed))
                        for seed in range(NUM_LISTENERS)
                    ]
                    start(context, UUID(job_id))
                    tasks.create_task(publish())
                return [listener.result() for listener in listeners]

            received = asyncio.run(run())
    engine.dispose()
    assert len(received) == NUM_LISTENERS
    for seqs, _num_drops in received:
        assert seqs == list(range(1, NUM_EVENTS + 1))
    assert sum(num_drops for _seqs, num_drops in received) > NUM_LISTENERS, "hardly any drops"


def is_ready(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/health/ready", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
