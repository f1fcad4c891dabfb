"""Whether the process lives, whether what it needs answers, and what it measures."""

from collections.abc import Callable
from functools import partial

import anyio
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from redis.exceptions import RedisError
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from api.context import ApiContext
from api.deps import Context
from api.schemas import DependencyView, HealthView
from core.db import read_session
from core.errors import ScriptoriumError
from core.events import connect_redis
from models import LOCAL_KEY_ID, ApiKey

router = APIRouter(tags=["operation"])

CHECK_TIMEOUT_S = 3.0


@router.get("/health/live")
async def live() -> dict[str, str]:
    """Say that this process answers."""
    return {"status": "ok"}


@router.get("/health/ready", responses={503: {"model": HealthView}})
async def ready(context: Context) -> JSONResponse:
    """Say whether database, Redis and storage answer, and which does not."""
    checks: dict[str, DependencyView] = {}

    async def check(name: str, probe: Callable[[ApiContext], None]) -> None:
        checks[name] = await _check(partial(probe, context))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(check, "database", _ask_database)
        tasks.start_soon(check, "redis", _ask_redis)
        tasks.start_soon(check, "storage", _ask_storage)
    is_ready = all(view.ok for view in checks.values())
    view = HealthView(status="ok" if is_ready else "unavailable", checks=checks)
    return JSONResponse(view.model_dump(mode="json"), status_code=200 if is_ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(context: Context) -> Response:
    """Return what Prometheus scrapes."""
    body = context.metrics.render(context.sessions)
    return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _check(probe: Callable[[], None]) -> DependencyView:
    try:
        with anyio.fail_after(CHECK_TIMEOUT_S):
            await anyio.to_thread.run_sync(probe, abandon_on_cancel=True)
    except TimeoutError:
        return DependencyView(ok=False, error=f"no answer within {CHECK_TIMEOUT_S:g} s")
    except (SQLAlchemyError, RedisError, ScriptoriumError, OSError) as exc:
        # The class alone: messages of drivers carry host names and users.
        return DependencyView(ok=False, error=type(exc).__name__)
    return DependencyView(ok=True)


def _ask_database(context: ApiContext) -> None:
    with read_session(context.sessions) as session:
        session.execute(select(ApiKey.id).where(ApiKey.id == LOCAL_KEY_ID)).first()


def _ask_redis(context: ApiContext) -> None:
    with connect_redis(context.settings.redis) as redis:
        redis.ping()


def _ask_storage(context: ApiContext) -> None:
    next(iter(context.storage.list("health/")), None)
