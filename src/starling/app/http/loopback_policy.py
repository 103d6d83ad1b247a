"""Who may come in without a key: only this machine, and no page of a browser that was led here."""

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from starling.app.access.keys import KeyService
from starling.core.errors import ConfigurationError

_FORWARDING = ("forwarded", "via", "x-forwarded", "x-real-ip")  # what headers of proxies begin with
_NAMES = frozenset({"localhost"})


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine and nothing else."""
    if host in _NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def refuse_open_binding(host: str, keys: KeyService) -> None:
    """Raise ConfigurationError where other machines could reach a server that nobody has a key for."""
    if not is_loopback(host) and not await keys.any_active():
        raise ConfigurationError(
            f"Starling would listen on {host}, but there is no key that anybody could call it with.",
            "Listen on 127.0.0.1 until `starling key create` has made one.",
        )


def keyless_refusal(scope: Scope) -> str:
    """Return why a request can't come in without a key; nothing where it can."""
    headers = Headers(scope=scope)
    client = scope.get("client")
    if client and not is_loopback(client[0]):
        return "The request comes from another machine."
    if found := next((name for name in headers if name.startswith(_FORWARDING)), ""):
        return f"The request was forwarded: it has the header {found}."
    if scope["http_version"] == "1.0":  # nginx says nothing else of itself
        return "The request is of HTTP/1.0, which nobody speaks but proxies."
    host = _host(f"//{headers.get('host', '')}")
    if not is_loopback(host):
        return f"The request is meant for the host {host!r}."
    origin = headers.get("origin")
    if origin is not None and not is_loopback(_host(origin)):
        return f"The request comes from a page of {origin!r}."
    return ""


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # it is no URL
        return ""
