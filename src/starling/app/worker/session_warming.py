"""Sessions that are opened before they are needed: those of the servers that were called last."""

import logging

from starling.core.errors import DatabaseUnavailableError
from starling.core.tools import Halts, ToolGateway
from starling.infra.postgres.runs.call_claims import CalledServer, RecentCalls

_MOST = 4
_log = logging.getLogger(__name__)


async def warm_recent_servers(calls: RecentCalls, gateway: ToolGateway, halts: Halts) -> None:
    """Begin to open the sessions of the at most 4 servers that were called last.

    Servers that are degraded or were removed are left out, and so are those that are switched off for the tenant that
    called them. A session that can't be opened is logged.
    """
    try:
        called = await calls.servers()
    except DatabaseUnavailableError as error:
        _log.info("no sessions are opened in advance: %s", error)
        return
    usable = [item.server for item in called if _is_usable(item.server, gateway) and not _halted(item, halts)]
    for server in list(dict.fromkeys(usable))[:_MOST]:
        gateway.warm(server)


def _is_usable(server: str, gateway: ToolGateway) -> bool:
    listing = gateway.listing(server)
    return listing is not None and listing.state == "ready"


def _halted(called: CalledServer, halts: Halts) -> bool:
    return bool(halts.everything(called.tenant, "")) or called.server in halts.named("server", called.tenant)
