"""Requests to addresses that callers named: webhooks and `media_url`.

The guard resolves once, checks every address and connects to what it checked, so that a name which
changes its mind between check and use gains nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_network
from typing import Any

import httpx
from ssrfguard import Policy, SSRFGuardError
from ssrfguard.errors import TooManyRedirectsError
from ssrfguard.httpx import AsyncClient, Client

from core import errors

EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))
MAX_URL_CHARS = 2048
CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})

MAX_REDIRECTS = 5
PAGE_TYPES = (
    "text/html", "text/xml", "application/json", "application/xml", "application/xhtml", "image/",
)  # fmt: skip
"""What a login or error page has. Media often comes as octet-stream, without a type, as the
text/plain of a server that knows no better, and MPEG-TS as a text of Qt's Linguist."""

RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers of a media's source that may pass."""

Resolver = Callable[..., Any]
"""A stand-in for `socket.getaddrinfo`."""


def outbound_policy(
    *, allow_private: bool, max_redirects: int = 5, sensitive_headers: Iterable[str] = ()
) -> Policy:
    """Return what may be reached: public addresses only, unless the deployment says otherwise.

    Args:
        sensitive_headers: Dropped, beside credentials, when a redirect leads to another origin.
    """
    return Policy(
        max_redirects=max_redirects,
        sensitive_headers=CREDENTIALS | {name.lower() for name in sensitive_headers},
        allowed_ports=frozenset(range(1, 65_536)),
        allowed_networks=EVERYWHERE if allow_private else (),
        max_url_length=MAX_URL_CHARS,
    )


def check_url(url: str, *, allow_private: bool, param: str) -> str:
    """Return `url` if nothing in its spelling forbids it; where its name points shows later.

    Raises:
        InvalidOption: It is no http(s) URL, carries credentials, or names a private address.
    """
    try:
        outbound_policy(allow_private=allow_private).check_url(url)
        httpx.URL(url)
    except (SSRFGuardError, httpx.InvalidURL, ValueError) as exc:
        reason = getattr(exc, "reason", None) or str(exc)
        raise errors.InvalidOption(f"{param}: {reason}", param=param) from exc
    return url


def is_page(content_type: str) -> bool:
    """Whether an answer of this type is something for people rather than media."""
    return content_type.strip().lower().startswith(PAGE_TYPES)


@contextmanager
def refusing_sources() -> Iterator[None]:
    """Translate what makes a `media_url` unusable; that its server is in trouble passes through.

    Raises:
        MediaUnreachable: Trying again cannot help.
    """
    try:
        yield
    except (TooManyRedirectsError, httpx.TooManyRedirects) as exc:
        raise errors.MediaUnreachable("The media_url redirects without an end.") from exc
    except SSRFGuardError as exc:
        raise errors.MediaUnreachable(
            "The media_url leads to an address that is not allowed."
        ) from exc
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as exc:
        raise errors.MediaUnreachable("The media_url cannot be used.") from exc


def origin(url: str) -> str:
    """Return scheme, host and port of a checked URL, lower case."""
    parsed = httpx.URL(url)
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    return f"{parsed.scheme}://{parsed.host}:{port}"[:300]


def open_async_client(
    *, allow_private: bool, timeout_s: float, connections: int, resolver: Resolver | None = None
) -> httpx.AsyncClient:
    """Return a client that follows no redirect and reads nothing from the environment."""
    return AsyncClient(
        policy=outbound_policy(allow_private=allow_private),
        resolver=resolver,
        timeout=httpx.Timeout(timeout_s),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=0),
        follow_redirects=False,
        trust_env=False,
    )


def open_client(
    *,
    allow_private: bool,
    timeout_s: float,
    max_redirects: int,
    sensitive_headers: Iterable[str] = (),
    resolver: Resolver | None = None,
) -> httpx.Client:
    """Return a blocking client; each hop of a redirect is checked like the first."""
    return Client(
        policy=outbound_policy(
            allow_private=allow_private,
            max_redirects=max_redirects,
            sensitive_headers=sensitive_headers,
        ),
        resolver=resolver,
        timeout=httpx.Timeout(timeout_s),
        limits=httpx.Limits(max_connections=4, max_keepalive_connections=0),
        follow_redirects=True,
        trust_env=False,
    )


def read_retry_after(headers: httpx.Headers, now: datetime) -> float | None:
    """Return the seconds a Retry-After header asks for; None if absent or unreadable."""
    value = headers.get("retry-after")
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value.strip()[:9])
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())
