"""Who can reach a server."""

import ipaddress

from core.errors import InvalidInput


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposure(host: str, *, is_auth_on: bool) -> None:
    """Refuse to serve a network without keys.

    Raises:
        InvalidInput: Keys are off and others than this machine could connect.
    """
    if not is_auth_on and not is_loopback(host):
        raise InvalidInput(
            f"Without keys everybody who reaches {host} could read every transcript: "
            "--no-auth works with --host 127.0.0.1 only."
        )
