"""The HTTP application, assembled from a context."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import Depends, FastAPI

from api import idempotency, openapi, problems
from api.context import ApiContext
from api.middleware import RequestContext
from api.openai import models as openai_models
from api.openai import transcriptions as openai_transcriptions
from api.query import refuse_unknown_query
from api.realtime.store import LiveStore
from api.routes import (
    batches,
    events,
    health,
    jobs,
    keys,
    page,
    realtime,
    transcripts,
    uploads,
    webhooks,
)
from core.logging import hush_refused_handshakes

TITLE = "Scriptorium"
VERSION = "0.1.0"
DESCRIPTION = """Turns recordings into transcripts and never loses one.

Errors under `/v1` are RFC 9457 problem details with a stable `code`; under `/v1/audio`,
`/v1/models` and `/v1/realtime` they have OpenAI's shape."""


def create_app(context: ApiContext) -> FastAPI:
    """Return the application; it listens to Redis for as long as its lifespan lasts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(work()) for work in (context.hub.run, context.waiters.run)]
        live = LiveStore(context.settings.redis, lease_s=context.settings.live_lease_s)
        app.state.live_store = live
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await live.aclose()

    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
        responses=openapi.COMMON_RESPONSES,
    )
    app.state.context = context
    hush_refused_handshakes()
    problems.install_handlers(app)
    idempotency.install(app)
    app.add_middleware(RequestContext, metrics=context.metrics)
    for module in (jobs, transcripts, events, webhooks, uploads, keys, batches):
        app.include_router(module.router, dependencies=[Depends(refuse_unknown_query)])
    for module in (openai_transcriptions, openai_models, realtime, health, page):
        app.include_router(module.router)
    openapi.install(app)
    return app
