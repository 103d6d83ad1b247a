"""Configured services: the trace collector, the context service and the brainstem."""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter

import aiohttp
from yarl import URL

from starling.core.diagnostics import Diagnostic, ok, problem, warning
from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings
from starling.core.validation_errors import http_address
from starling.infra.context_service import bearer
from starling.infra.tracing.destination import destination_of

_SECONDS = 5.0
_REFUSED = (401, 403)
_CAUTIOUSLY = "Until it answers, runs are allowed no more than in mode CONSERVATIVE."


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Return whether each service answers, by requests that change nothing."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS)) as session:
        context, sent = settings.context_service_url, bearer(settings.context_service_token)
        brainstem, token = settings.brainstem_url, bearer(settings.brainstem_token)
        found = await asyncio.gather(
            _traces(session, settings),
            *([_asked(session, "context service", "OPTIONS", context, sent)] if context else ()),
            *([_asked(session, "brainstem", "OPTIONS", brainstem, token, _CAUTIOUSLY)] if brainstem else ()),
        )
    if bool(settings.langfuse_public_key) == bool(settings.langfuse_secret_key):
        return [*filter(None, found)]
    said = "Of LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY only one is set: Langfuse gets no traces."
    return [warning("langfuse", said, "Set both, or neither."), *filter(None, found)]


async def _traces(session: aiohttp.ClientSession, settings: Settings) -> Diagnostic | None:
    try:
        destination = destination_of(settings)
    except ConfigurationError as error:
        return problem("traces", error)
    if destination is None:
        return None
    if destination.langfuse:  # a route that also checks the keys
        question = "GET", f"{destination.langfuse}/api/public/projects"
    else:
        question = "OPTIONS", destination.traces
    return await _asked(session, "traces", *question, destination.headers)


async def _asked(
    session: aiohttp.ClientSession, subject: str, method: str, url: str, headers: Mapping[str, str], then: str = ""
) -> Diagnostic:
    """Send the probe: any answer shows that the service is up; 401 and 403 are a warning."""
    try:
        shown = str(URL(http_address(f"The address of the {subject}", url, "http://localhost:8001")).with_user(None))
    except ConfigurationError as error:
        return problem(subject, error)
    begun = perf_counter()
    remedy = f"{then or 'Runs go on without it.'} Check its address and that it runs."
    try:
        async with session.request(method, url, headers=headers) as response:
            status = response.status
    except TimeoutError:
        return Diagnostic(subject, "problem", f"{shown} didn't answer within {_SECONDS:g} s.", remedy)
    except (aiohttp.ClientError, ValueError) as error:
        return Diagnostic(subject, "problem", f"{shown} can't be reached ({type(error).__name__}).", remedy)
    said = f"{shown} answered with HTTP {status} in {(perf_counter() - begun) * 1000:.0f} ms."
    if status in _REFUSED:
        return warning(subject, said, "Check the configured keys.")
    return ok(subject, said)
