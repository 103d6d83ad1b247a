"""Services around us, where they are configured: for traces, and for the audit trail."""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter

import aiohttp
from yarl import URL

from starling.app.doctor.finding import Finding, ok, problem
from starling.core.errors import ConfigurationError
from starling.core.settings import Settings
from starling.infra.tracing.destination import Destination, destination_of

_SECONDS = 5.0
_REFUSED = (401, 403)


async def check(settings: Settings) -> Sequence[Finding]:
    """Find whether each service answers. Nothing is sent to it but a question that changes nothing."""
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
    """Return the method and address that tell whether somebody is there; Langfuse tells so whether it knows our keys.

    It looks at keys only where it knows the method, and there is nothing to read where traces go.
    """
    if destination.scores:
        return "GET", f"{destination.scores.removesuffix('scores')}projects"
    return "OPTIONS", destination.traces


async def _asked(
    session: aiohttp.ClientSession, subject: str, method: str, url: str, headers: Mapping[str, str]
) -> Finding:
    """Ask: whatever the answer, somebody is there; refusing us is worth a warning."""
    shown = _without_password(url)
    if not shown:
        said = "What is set as its address is no http(s) address."
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
        return Finding(subject, "warning", said, "Check the keys that it is to be told.")
    return ok(subject, said)


def _without_password(url: str) -> str:
    """Return an address as it may be shown; nothing where it is none of HTTP."""
    try:
        parsed = URL(url)
    except ValueError:
        return ""
    return str(parsed.with_user(None)) if parsed.scheme in ("http", "https") and parsed.host else ""
