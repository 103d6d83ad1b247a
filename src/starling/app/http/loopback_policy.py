"""Requests without a key: accepted from this machine only, and not from web pages of other origins."""

import ipaddress
import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from starling.app.access.keys import KeyService
from starling.core.errors import ConfigurationError

_FORWARDING = ("forwarded", "via", "x-forwarded", "x-real-ip")  # prefixes of the headers that proxies add
_NAMES = frozenset({"localhost"})
_AUTHORITY: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_HTTP_PORT: Final = 80


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine and nothing else."""
    if host in _NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def refuse_open_binding(host: str, keys: KeyService) -> None:
    """Raise ConfigurationError where other machines could reach the API and no key is active."""
    if not is_loopback(host) and not await keys.any_active():
        raise ConfigurationError(
            f"Starling would listen on {host}, which other machines can reach, but there is no key.",
            "Create one with `starling key create`, or listen on 127.0.0.1.",
        )


def keyless_refusal(scope: Scope) -> str:
    """Return why a request without a key is refused; an empty text where it is accepted."""
    headers = Headers(scope=scope)
    client = scope.get("client")
    if client and not is_loopback(client[0]):
        return "Refused without a key: the request comes from another machine."
    if found := next((name for name in headers if name.startswith(_FORWARDING)), ""):
        return f"Refused without a key: the request came through a proxy (header {found})."
    if scope["http_version"] == "1.0":  # nginx sends no other sign of itself
        return "Refused without a key: the request came through a proxy (HTTP/1.0)."
    host = headers.get("host", "")
    if (addressed := _authority(host)) is None or not is_loopback(addressed[0]):
        return f"Refused without a key: the request is addressed to the host {host!r}."
    origin = headers.get("origin")
    if origin is not None:  # only pages of the very address that the request goes to are accepted, port included
        scheme, _, authority = origin.partition("://")
        if scheme != "http" or _authority(authority) != addressed:
            return f"Refused without a key: the request comes from a web page of {origin!r}."
    return ""


def _authority(text: str) -> tuple[str, int] | None:
    """Return host and port of `host[:port]`; None for anything else, such as a host with a path."""
    found = _AUTHORITY.fullmatch(text)
    return None if found is None else (found["host"].lower(), int(found["port"] or _HTTP_PORT))
