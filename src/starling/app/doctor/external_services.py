"""Configured services: the trace collector and the context service."""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter

import aiohttp
from yarl import URL

from starling.app.doctor.finding import Finding, ok, problem
from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings
from starling.infra.tracing.destination import Destination, destination_of

_SECONDS = 5.0
_REFUSED = (401, 403)


async def check(settings: Settings) -> Sequence[Finding]:
    """Return whether each service answers, by requests that change nothing."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS)) as session:
        found = await asyncio.gather(_traces(session, settings), _context_service(session, settings))
    return [*_half_of_the_keys(settings), *filter(None, found)]


async def _traces(session: aiohttp.ClientSession, settings: Settings) -> Finding | None:
    try:
        destination = destination_of(settings)
    except ConfigurationError as error:
        return problem("traces", error)
    return await _asked(session, "traces", *_question(destination), destination.headers) if destination else None


async def _context_service(session: aiohttp.ClientSession, settings: Settings) -> Finding | None:
    url = settings.context_service_url
    return await _asked(session, "context service", "OPTIONS", url, {}) if url else None


def _half_of_the_keys(settings: Settings) -> Sequence[Finding]:
    if bool(settings.langfuse_public_key) == bool(settings.langfuse_secret_key):
        return []
    said = "Of LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY only one is set: Langfuse gets no traces."
    return [Finding("langfuse", "warning", said, "Set both, or neither.")]


def _question(destination: Destination) -> tuple[str, str]:
    """Return the method and address of the probe; with Langfuse a route that also checks the keys."""
    if destination.langfuse:
        return "GET", f"{destination.langfuse}/api/public/projects"
    return "OPTIONS", destination.traces


async def _asked(
    session: aiohttp.ClientSession, subject: str, method: str, url: str, headers: Mapping[str, str]
) -> Finding:
    """Send the probe: any answer shows that the service is up; 401 and 403 are a warning."""
    shown = _without_password(url)
    if not shown:
        said = "Its configured address is not an http(s) URL."
        return Finding(subject, "problem", said, "Write for example http://localhost:8001.")
    begun = perf_counter()
    remedy = "Runs go on without it. Check its address and that it runs."
    try:
        async with session.request(method, url, headers=headers) as response:
            status = response.status
    except TimeoutError:
        return Finding(subject, "problem", f"{shown} didn't answer within {_SECONDS:g} s.", remedy)
    except (aiohttp.ClientError, ValueError) as error:
        return Finding(subject, "problem", f"{shown} can't be reached ({type(error).__name__}).", remedy)
    said = f"{shown} answered with HTTP {status} in {(perf_counter() - begun) * 1000:.0f} ms."
    if status in _REFUSED:
        return Finding(subject, "warning", said, "Check the configured keys.")
    return ok(subject, said)


def _without_password(url: str) -> str:
    """Return an address without its password; empty where it is not an HTTP address."""
    try:
        parsed = URL(url)
    except ValueError:
        return ""
    return str(parsed.with_user(None)) if parsed.scheme in ("http", "https") and parsed.host else ""
