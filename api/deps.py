"""What routes ask for: a transaction, the services, and who is calling."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Request, WebSocket
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from sqlalchemy.orm import Session
from starlette.requests import HTTPConnection

from api.context import ApiContext
from api.limits import admit
from core.db import UnitOfWork, read_session, unit_of_work
from core.errors import Forbidden, JobNotFound, Unauthenticated
from core.keys import Scope
from lifecycle.keys import authenticate, is_use_stale, note_use
from lifecycle.limits import Limits
from models import LOCAL_KEY_ID

KEY_PROTOCOL = "openai-insecure-api-key."
"""Subprotocol of a WebSocket that carries a key.

Source: https://platform.openai.com/docs/guides/realtime-websocket, "in the browser"."""

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls; owns what it submits and sees nothing else, whatever its scopes.

    Attributes:
        secret: The API key itself; "" where keys are off.
    """

    key_id: UUID
    scopes: frozenset[str]
    limits: Limits
    secret: str = field(default="", repr=False)

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the key has `scope` (or is an administrator's)."""
        if not self.scopes & {scope, Scope.ADMIN}:
            raise Forbidden(f"This key lacks the scope {scope.value!r}.")


def now() -> datetime:
    """Return the time, at the edge where time enters."""
    return datetime.now(UTC)


def get_context(connection: HTTPConnection) -> ApiContext:
    """Return what `api.app.create_app` was given."""
    context: ApiContext = connection.app.state.context
    return context


async def _context(connection: HTTPConnection) -> ApiContext:
    # `async`, like all here that blocks on nothing: FastAPI takes the others to a thread and back.
    return get_context(connection)


Context = Annotated[ApiContext, Depends(_context)]


def identify(context: ApiContext, connection: HTTPConnection) -> Caller:
    """Return the caller of a request or WebSocket; blocks on the database.

    Raises:
        Unauthenticated: There is no key, or not a valid one.
        Forbidden: Keys are off and a web page elsewhere is behind this request.
    """
    if not context.settings.auth:
        _refuse_strangers(connection)
        limits = Limits.of(context.settings, {})
        return Caller(key_id=LOCAL_KEY_ID, scopes=frozenset(Scope), limits=limits)
    secret = _find_secret(connection)
    if not secret:
        raise Unauthenticated("Send an API key as `Authorization: Bearer sk-…`.")
    with read_session(context.sessions) as session:
        row = authenticate(session, secret)
    if is_use_stale(row, now=now()):
        with unit_of_work(context.sessions) as uow:
            note_use(uow, row.id, now=now())
    limits = Limits.of(context.settings, row.limits)
    return Caller(key_id=row.id, scopes=frozenset(row.scopes), limits=limits, secret=secret)


def admit_socket(context: ApiContext, socket: WebSocket, scope: Scope) -> Caller:
    """Return the caller of a WebSocket that counts as a request; blocks on database and Redis.

    Raises:
        Unauthenticated: See `identify`.
        Forbidden: See `identify`; or the key lacks `scope`.
        LimitExceeded: The key has used up its requests of this minute.
    """
    caller = identify(context, socket)
    caller.require(scope)
    admit(context.limiter, caller.key_id, caller.limits.requests_per_min, now=now())
    return caller


def offered_protocols(connection: HTTPConnection) -> list[str]:
    """Return the subprotocols that a WebSocket's client offers."""
    names = connection.headers.get("sec-websocket-protocol", "").split(",")
    return [name.strip() for name in names if name.strip()]


def choose_protocol(connection: HTTPConnection) -> str | None:
    """Return the first subprotocol offered that carries no key.

    Browsers close a connection whose server chose none of those they offered.
    """
    names = offered_protocols(connection)
    return next((name for name in names if not name.startswith(KEY_PROTOCOL)), None)


def _find_secret(connection: HTTPConnection) -> str | None:
    """Return the key that came with a request.

    Scripts in browsers cannot set headers of a WebSocket; OpenAI's put the key into a subprotocol.
    """
    scheme, secret = get_authorization_scheme_param(connection.headers.get("authorization"))
    if scheme.lower() == "bearer" and secret:
        return secret
    if connection.scope["type"] == "websocket":
        for name in offered_protocols(connection):
            if name.startswith(KEY_PROTOCOL):
                return name.removeprefix(KEY_PROTOCOL)
    return None


def _refuse_strangers(connection: HTTPConnection) -> None:
    """Without keys a page from elsewhere could post here through the user's browser.

    Its Origin tells it apart; a name that it made to point at loopback (DNS rebinding) shows in
    Host.
    """
    host = connection.headers.get("host", "")
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    if name.lower() not in LOOPBACK_HOSTS:
        raise Forbidden("Without API keys this service answers on loopback names only.")
    origin = connection.headers.get("origin")
    if origin is not None and origin.split("://")[-1] != host:
        raise Forbidden("Without API keys this service answers no page of another origin.")


_bearer = HTTPBearer(auto_error=False, description="An API key: `sk-…`.")


def _requires(scope: Scope) -> Callable[..., Caller]:
    def caller(
        request: Request, context: Context, _documented: Annotated[object, Depends(_bearer)]
    ) -> Caller:
        caller = identify(context, request)
        caller.require(scope)
        limit = caller.limits.requests_per_min
        request.state.limit_numbers = admit(context.limiter, caller.key_id, limit, now=now())
        return caller

    return caller


Reader = Annotated[Caller, Depends(_requires(Scope.READ))]
Submitter = Annotated[Caller, Depends(_requires(Scope.SUBMIT))]
Administrator = Annotated[Caller, Depends(_requires(Scope.ADMIN))]


def _uow(context: Context) -> Iterator[UnitOfWork]:
    with unit_of_work(context.sessions) as uow:
        yield uow


def _reading(context: Context) -> Iterator[Session]:
    with read_session(context.sessions) as session:
        yield session


# scope="function": commit before the response leaves; FastAPI's default commits after it.
Uow = Annotated[UnitOfWork, Depends(_uow, scope="function")]
Reading = Annotated[Session, Depends(_reading, scope="function")]


async def _job_id(
    job_id: Annotated[str, Path(json_schema_extra={"format": "uuid"})],
) -> UUID:
    try:
        return UUID(job_id)
    except ValueError as exc:
        raise JobNotFound(f"There is no job {job_id[:64]!r}.") from exc


JobId = Annotated[UUID, Depends(_job_id)]
