"""Who may come in without a key: only this machine, and no page of a browser that was led here."""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from starling.app.http.problems import problem
from starling.core.errors import ConfigurationError

_FORWARDING = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_NAMES = frozenset({"localhost"})


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine and nothing else."""
    if host in _NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open_binding(host: str) -> None:
    """Raise ConfigurationError where a server without keys would be reachable from other machines."""
    if not is_loopback(host):
        raise ConfigurationError(
            f"Starling would listen on {host} without asking anybody for a key.",
            "Listen on 127.0.0.1; put a gateway of yours that asks for keys on the same machine before it.",
        )


class LoopbackOnly:
    """Refuses requests of other machines, of other origins, for other hosts, and forwarded ones, with 403."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with the reason."""
        reason = "" if scope["type"] != "http" else _refusal(scope)
        if not reason:
            await self._app(scope, receive, send)
            return
        remedy = "Without a key, call Starling from its own machine, directly, as http://localhost."
        await problem(403, "Forbidden", reason, "forbidden", remedy=remedy)(scope, receive, send)


def _refusal(scope: Scope) -> str:
    headers = Headers(scope=scope)
    client = scope.get("client")
    if client and not is_loopback(client[0]):
        return "The request comes from another machine."
    if found := _present(headers, _FORWARDING):
        return f"The request was forwarded: it has the header {found}."
    host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    if not is_loopback(host):
        return f"The request is meant for the host {host!r}."
    origin = headers.get("origin")
    if origin is not None and not is_loopback(urlsplit(origin).hostname or ""):
        return f"The request comes from a page of {origin!r}."
    return ""


def _present(headers: Headers, names: Iterable[str]) -> str:
    return next((name for name in names if name in headers), "")
