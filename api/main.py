"""The API process: `uvicorn --factory api.main:create_app`."""

from fastapi import FastAPI

from api.app import create_app as assemble
from api.context import ApiContext
from api.hub import EventHub
from api.limits import RedisLimiter
from api.metrics import Metrics
from api.openai.waiters import Waiters
from core.audio.spawn import warm_up
from core.db import make_engine, make_sessions
from core.events import RedisPublisher, connect_redis
from core.logging import configure_logging
from core.queues import CeleryQueue, make_celery
from core.settings import Settings
from core.storage import open_storage

POOL_SIZE = 20
"""Connections to Postgres; requests run in at most 40 threads, few of them in the database."""


def create_app() -> FastAPI:
    """Return the application as the environment configures it."""
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    warm_up()
    return assemble(make_context(settings))


def make_context(settings: Settings) -> ApiContext:
    """Return the real services behind `settings`; none of them is asked anything yet."""
    queue = CeleryQueue(make_celery(settings.redis))
    queue.warm_up()
    redis = connect_redis(settings.redis)
    return ApiContext(
        settings=settings,
        sessions=make_sessions(
            make_engine(settings.database, pool_size=POOL_SIZE, sealer=settings.sealer)
        ),
        storage=open_storage(settings.storage, s3_endpoint_url=settings.s3_endpoint_url),
        queue=queue,
        publisher=RedisPublisher(redis, queue),
        limiter=RedisLimiter(redis),
        waiters=Waiters(redis),
        hub=EventHub(settings.redis),
        metrics=Metrics(),
    )
