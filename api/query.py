"""Query parameters that a route does not know are refused by name, as unknown options are."""

from collections.abc import Collection, Iterable

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from core.errors import InvalidOption


def refuse_unknown_query(connection: HTTPConnection) -> None:
    """Refuse a request with a parameter that would be passed over.

    `?dryrun=true` must not start a batch, nor `?state=failed` list every job. What the OpenAPI
    document describes is known; routes that are not in it take what they like.

    Raises:
        InvalidOption: The route has no such parameter.
    """
    route = connection.scope.get("route")
    if not connection.query_params or not isinstance(route, APIRoute):
        return
    if not isinstance(connection, Request) or not route.include_in_schema:
        return
    operation = connection.app.openapi()["paths"][route.path][connection.method.lower()]
    described = operation.get("parameters", [])
    known = {each["name"] for each in described if each["in"] == "query"}
    refuse_unknown(connection.query_params, known)


def refuse_unknown(names: Iterable[str], known: Collection[str]) -> None:
    """Refuse the first of `names` that is not `known`.

    Raises:
        InvalidOption: There is one.
    """
    for name in names:
        if name not in known:
            raise InvalidOption(f"{name[:64]}: there is no such parameter", param=name[:64])
