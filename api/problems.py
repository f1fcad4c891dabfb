"""The only place that turns errors into HTTP: status, headers and one of two bodies.

Under `/v1/audio`, `/v1/models` and `/v1/realtime` the body is OpenAI's
`{"error": {message, type, param, code}}`, elsewhere RFC 9457 problem details with our stable
`code`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from core import errors

log = structlog.get_logger(__name__)

OPENAI_PATHS = ("/v1/audio", "/v1/models", "/v1/realtime")
PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_S = 5

# The first class in an error's family tree decides.
STATUSES: Mapping[type[errors.ScriptoriumError], int] = {
    errors.MediaTooLarge: 413,
    errors.InvalidInput: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.LimitExceeded: 429,
    errors.Transient: 503,
    errors.ScriptoriumError: 500,
}
CLIENT_CLOSED_REQUEST = 499
"""nginx's code for a client that left; it reaches the log, never the client."""


class JobFailed(errors.ScriptoriumError):
    """The job that a request waited for failed; told as the error of its own code."""

    def __init__(self, error_code: str, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error as HTTP tells it.

    Attributes:
        fields: `[{param, message}]` if several inputs are wrong.
    """

    status: int
    code: str
    title: str
    detail: str
    param: str | None = None
    fields: list[dict[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


def install_handlers(app: FastAPI) -> None:
    """Make `app` answer every error through this module."""
    app.add_exception_handler(errors.ScriptoriumError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_error)
    app.add_exception_handler(HTTPException, _on_error)
    app.add_exception_handler(OperationalError, _on_error)
    app.add_exception_handler(ClientDisconnect, _on_error)


def describe(exc: Exception) -> Problem:
    """Return what HTTP says about `exc`; anything unexpected is a 500 without details."""
    if isinstance(exc, JobFailed):
        return _describe_failure(exc)
    if isinstance(exc, errors.ScriptoriumError):
        return _describe_ours(exc)
    if isinstance(exc, RequestValidationError):
        return _describe_validation(exc)
    if isinstance(exc, HTTPException):
        return _describe_router(exc)
    return _describe_foreign(exc)


def respond(problem: Problem, *, path: str, request_id: str | None) -> Response:
    """Return the response in the dialect of `path`."""
    if path.startswith(OPENAI_PATHS):
        problem = _as_openai_would(problem)
        return JSONResponse(
            openai_body(problem), status_code=problem.status, headers=problem.headers
        )
    body: dict[str, Any] = {
        "type": f"urn:scriptorium:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": path,
        "code": problem.code,
        "request_id": request_id,
    }
    if problem.param is not None:
        body["param"] = problem.param
    if problem.fields:
        body["errors"] = problem.fields
    return JSONResponse(
        body, status_code=problem.status, headers=problem.headers, media_type=PROBLEM_TYPE
    )


def openai_body(problem: Problem) -> dict[str, Any]:
    """Return the problem in OpenAI's shape.

    Source: https://platform.openai.com/docs/guides/error-codes, and `openai._exceptions`.
    """
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    fallback = "invalid_request_error" if problem.status < 500 else "server_error"
    return {
        "error": {
            "message": problem.detail or problem.title,
            "type": kinds.get(problem.status, fallback),
            "param": problem.param,
            "code": problem.code,
        }
    }


async def _on_error(request: Request, exc: Exception) -> Response:
    problem = describe(exc)
    if problem.status == HTTPStatus.METHOD_NOT_ALLOWED:  # the router names the first route's alone
        problem.headers["Allow"] = ", ".join(_allowed_methods(request))
    level = "warning" if problem.status >= 500 else "info"
    getattr(log, level)("request.refused", status=problem.status, error_code=problem.code)
    path = request.scope["path"]
    return respond(problem, path=path, request_id=request.scope.get("state", {}).get("request_id"))


def _allowed_methods(request: Request) -> list[str]:
    routes = request.app.routes
    return [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    ]


def _as_openai_would(problem: Problem) -> Problem:
    statuses = {errors.UnknownModel.code: 404, "invalid_request": 400}
    if problem.code not in statuses:
        return problem
    return Problem(
        status=statuses[problem.code],
        code=problem.code,
        title=problem.title,
        detail=problem.detail,
        param=problem.param,
        headers=problem.headers,
    )


def _describe_foreign(exc: Exception) -> Problem:
    if isinstance(exc, OperationalError):
        return _describe_ours(errors.ServiceUnavailable("The database does not answer."))
    if isinstance(exc, ClientDisconnect):
        return Problem(
            status=CLIENT_CLOSED_REQUEST, code="client_left", title="The client left", detail=""
        )
    return Problem(
        status=500,
        code=errors.ScriptoriumError.code,
        title=errors.ScriptoriumError.title,
        detail="The error was logged under the request id.",
    )


def _describe_failure(exc: JobFailed) -> Problem:
    kind = _find_kind(exc.error_code)
    return Problem(
        status=_status_of(kind),
        code=exc.error_code,
        title=kind.title,
        detail=str(exc),
        # The one option whose values depend on the checkpoint, which only workers know.
        param="language" if kind is errors.UnknownLanguage else None,
    )


def _find_kind(code: str) -> type[errors.ScriptoriumError]:
    """Return the error class whose code a job's row keeps; the base if there is none."""
    waiting = [errors.ScriptoriumError]
    while waiting:
        kind = waiting.pop()
        if kind.code == code:
            return kind
        waiting += kind.__subclasses__()
    return errors.ScriptoriumError


def _status_of(kind: type[errors.ScriptoriumError]) -> int:
    return next(STATUSES[parent] for parent in kind.__mro__ if parent in STATUSES)


def _describe_ours(exc: errors.ScriptoriumError) -> Problem:
    headers = {}
    if isinstance(exc, errors.Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="scriptorium"'
    if isinstance(exc, errors.LimitExceeded):
        headers["Retry-After"] = str(exc.retry_after_s)
        headers |= limit_headers(exc.numbers)
    elif isinstance(exc, errors.Transient):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return Problem(
        status=_status_of(type(exc)),
        code=exc.code,
        title=exc.title,
        detail=str(exc),
        param=exc.param if isinstance(exc, errors.InvalidOption) else None,
        headers=headers,
    )


def limit_headers(numbers: Mapping[str, int]) -> dict[str, str]:
    """Return the `X-RateLimit-…` headers that tell of limits."""
    return {f"X-RateLimit-{name.title()}": str(value) for name, value in numbers.items()}


def _describe_validation(exc: RequestValidationError) -> Problem:
    fields = [
        {
            "param": ".".join(str(part) for part in error["loc"][1:]) or str(error["loc"][0]),
            "message": str(error["msg"]),
        }
        for error in exc.errors()
    ]
    first = fields[0] if fields else {"param": "request", "message": "is not valid"}
    return Problem(
        status=422,
        code="invalid_request",
        title="The request is not well-formed",
        detail=f"{first['param']}: {first['message']}",
        param=first["param"],
        fields=fields,
    )


def _describe_router(exc: HTTPException) -> Problem:
    phrase = HTTPStatus(exc.status_code).phrase
    return Problem(
        status=exc.status_code,
        code=phrase.lower().replace(" ", "_").replace("'", ""),
        title=phrase,
        detail=str(exc.detail),
        headers=dict(exc.headers or {}),
    )
