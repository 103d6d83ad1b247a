"""Services around us, where they are configured: for traces, and for the audit trail."""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter

import aiohttp
from yarl import URL

from starling.app.doctor.finding import Finding, ok
from starling.core.settings import Settings
from starling.infra.tracing.destination import destination_of

_SECONDS = 5.0
_REFUSED = (401, 403)


async def check(settings: Settings) -> Sequence[Finding]:
    """Find whether each service answers. Nothing is sent to it but a question that changes nothing."""
    destination = destination_of(settings)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS)) as session:
        asked = [
            *([_asked(session, "traces", destination.traces, destination.headers)] if destination else ()),
            *(
                [_asked(session, "context service", settings.context_service_url, {})]
                if settings.context_service_url
                else ()
            ),
        ]
        return await asyncio.gather(*asked)


async def _asked(session: aiohttp.ClientSession, subject: str, url: str, headers: Mapping[str, str]) -> Finding:
    """Ask with OPTIONS: whatever the answer, somebody is there; refusing us is worth a warning."""
    begun, shown = perf_counter(), URL(url).with_user(None)
    remedy = "Runs go on without it. Check its address and that it runs."
    try:
        async with session.options(url, headers=headers) as response:
            status = response.status
    except TimeoutError:
        return Finding(subject, "problem", f"{shown} didn't answer within {_SECONDS:g} s.", remedy)
    except (aiohttp.ClientError, ValueError) as error:
        return Finding(subject, "problem", f"{shown} can't be reached ({type(error).__name__}).", remedy)
    said = f"{shown} answered with HTTP {status} in {(perf_counter() - begun) * 1000:.0f} ms."
    if status in _REFUSED:
        return Finding(subject, "warning", said, "Check the keys that it is to be told.")
    return ok(subject, said)
