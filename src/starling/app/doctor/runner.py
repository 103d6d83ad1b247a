"""Runs all checks at once, each with a time limit."""

import asyncio
from collections.abc import Mapping, Sequence

from mcp_gateway.registration.listing_schedule import DOWNLOAD_SECONDS
from starling.app.doctor import (
    database,
    embeddings,
    external_services,
    machine,
    mcp_servers,
    model_endpoints,
    prompt_sources,
)
from starling.core.diagnostics import Check, Diagnostic, problem
from starling.core.errors import StarlingError
from starling.core.settings.schema import Settings

_SECONDS = 20.0
_CHECKS: Mapping[str, Check] = {
    "python": machine.check_python,
    "disk": machine.check_disk,
    "postgres": database.check,
    "models": model_endpoints.check,
    "embeddings": embeddings.check,
    "services": external_services.check,
    "prompts": prompt_sources.check,
    "runtimes": machine.check_runtimes,
}


async def run_checks(settings: Settings) -> Sequence[Diagnostic]:
    """Return the findings of all checks, in a fixed order. A failing check is a finding, not an error."""
    # Servers have a time limit of their own, and some more to end.
    server_seconds = max(settings.limits.server_start_seconds, DOWNLOAD_SECONDS) * 2 + _SECONDS
    checks = [_bounded(name, check, settings, _SECONDS) for name, check in _CHECKS.items()]
    found = await asyncio.gather(*checks, _bounded("servers", mcp_servers.check, settings, server_seconds))
    return [finding for findings in found for finding in findings]


async def _bounded(name: str, check: Check, settings: Settings, seconds: float) -> Sequence[Diagnostic]:
    try:
        async with asyncio.timeout(seconds):
            return await check(settings)
    except TimeoutError:
        return [Diagnostic(name, "problem", f"The check did not finish within {seconds:g} s.", "Check it by hand.")]
    except StarlingError as error:
        return [problem(name, error)]
