"""What servers offer on open sessions against what was approved: what may be called, and what is stored."""

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from typing import Final

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.approved_tools import ApprovedTools, Offer
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.pins import Occasion
from mcp_gateway.registration.repository import ListedServer, ServerRepository, ServerRow
from starling.core.errors import DatabaseUnavailableError

_log = logging.getLogger(__name__)
_STORE_DELAY_SECONDS: Final = 0.5  # listings of other sessions with the same server may follow
_STORE_AGAIN_SECONDS: Final = 600.0  # for a server whose tools change all the time


class LiveReview:
    """Compares listings of open sessions with the stored pins, and stores the differences.

    What quarantines a tool is stored at once, and happens once: on open sessions no quarantine ends. Any other
    difference of a server is stored at most every ten minutes. One process at a time stores.
    """

    def __init__(self, repository: ServerRepository) -> None:
        self._repository = repository
        self._approved = ApprovedTools(repository)
        self._latest: dict[str, tuple[str, Listed]] = {}  # to be stored, by server: the configuration's hash, the tools
        self._again: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def followed(self, name: str, config_hash: str, listed: Listed) -> Mapping[str, str]:
        """Return the approved hashes of tools that changed as the server's policy lets them, by tool.

        Whatever else differs is stored soon.
        """
        try:
            found = await self._compared(name, config_hash, listed)
        except DatabaseUnavailableError as error:
            _log.warning("the tools of MCP server %s can't be compared with the approved ones: %s", name, error)
            return {}
        if found is None:
            return {}
        row, after, _ = found
        if after.row != row:
            self._store_soon(name, config_hash, listed)
        return {tool: pin for tool, pin in row.tools.items() if after.row.tools.get(tool, pin) != pin}

    async def stop(self) -> None:
        """Stop storing."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compared(
        self, name: str, config_hash: str, listed: Listed
    ) -> tuple[ServerRow, ListedServer, list[ServerRow]] | None:
        """Return a server as it is stored, as it would be stored now, and all servers; None if it has changed."""
        known = await self._repository.servers()
        row = next((row for row in known if (row.name, row.config_hash) == (name, config_hash)), None)
        if row is None or row.state != "ready":
            return None
        config = server_of(row.config)
        offer = Offer(row, config, listed, Occasion(config.options.pins, row.source, live=True))
        [after] = await self._approved.of([offer])
        return row, after, known

    def _store_soon(self, name: str, config_hash: str, listed: Listed) -> None:
        is_waiting = name in self._latest
        self._latest[name] = config_hash, listed
        if not is_waiting:
            task = asyncio.get_running_loop().create_task(self._store(name), name=f"store tools of {name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _store(self, name: str) -> None:
        await asyncio.sleep(_STORE_DELAY_SECONDS)
        config_hash, listed = self._latest.pop(name)
        try:
            while found := await self._compared(name, config_hash, listed):
                row, after, known = found
                if after.row == row or not self._is_due(row, after.row):
                    return
                if await self._repository.change((), [after], known):
                    self._again[name] = monotonic() + _STORE_AGAIN_SECONDS
                    _log.warning(
                        "MCP server %s offers other tools than were approved: %s", name, _shown(row, after.row)
                    )
                    return
        except DatabaseUnavailableError as error:
            _log.warning("what MCP server %s offers now can't be stored: %s", name, error)

    def _is_due(self, row: ServerRow, after: ServerRow) -> bool:
        return bool(row.tools.keys() - after.tools.keys()) or monotonic() >= self._again.get(row.name, 0.0)


def _shown(row: ServerRow, after: ServerRow) -> str:
    changed = {tool: pin for tool, pin in after.pins.items() if row.pins.get(tool) != pin}
    return "; ".join(f"{tool} is {pin.state}. {pin.reason}".strip() for tool, pin in sorted(changed.items())) or "none"
