"""From what servers offer to what is stored of them: the tools that are approved, and the pins of all."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Final

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.pins import Occasion, Pin, Pins, judged, without_approvals
from mcp_gateway.registration.repository import ListedServer, ServerRepository, ServerRow
from mcp_gateway.registration.server_rows import Answer
from starling.core.errors import ConflictError, DatabaseUnavailableError, NotFoundError

_ROLLED_BACK: Final = "It isn't in the epoch that was rolled back to."


type Offer = tuple[Answer, Occasion]
"""What a server listed, and how that came about."""


class ApprovedTools:
    """Decides by the stored pins which of the listed tools are in use."""

    def __init__(self, repository: ServerRepository) -> None:
        self._repository = repository

    async def of(self, offers: Iterable[Offer]) -> list[ListedServer]:
        """Return what is to be stored for these offers."""
        given = list(offers)
        if not given:
            return []
        pins = await self._repository.pins([answer.row.name for answer, _ in given])
        return [await self._decided(*offer, pins.get(offer[0].row.name, {})) for offer in given]

    async def _decided(self, answer: Answer, occasion: Occasion, pins: Pins) -> ListedServer:
        if answer.listed is None:
            if occasion.keeps_approvals or not pins:
                return ListedServer(answer.row, {})
            waiting = without_approvals(pins)
            return ListedServer(stored_row(answer.row, waiting), {}, waiting)
        name, offered = answer.row.name, answer.listed.tools
        approved = {tool: pin.approved_hash for tool, pin in pins.items() if pin.approved_hash}
        definitions = await self._repository.definitions((name, tool, pin) for tool, pin in approved.items())
        occasion = replace(occasion, first=False) if pins else replace(occasion, moved=False)
        known = {tool: definitions[name, tool] for tool in approved if (name, tool) in definitions}
        found = await asyncio.to_thread(judged, pins, offered, known, occasion)  # long texts take a while
        row = stored_row(answer.row, found)
        if not row.description or not answer.listed.description:  # else it stays as a person had it listed
            row = replace(row, description=answer.config.options.description or answer.listed.described(row.tools))
        return ListedServer(row, offered, found)


def rolled_back(pins: Pins, tools: Mapping[str, str], by: str) -> dict[str, Pin]:
    """Return the pins with exactly these hashes approved again; other approvals are kept for the next listing."""
    kept = {
        tool: replace(pin, state="gone", reason=_ROLLED_BACK) if pin.state == "approved" else pin
        for tool, pin in pins.items()
        if tool not in tools
    }
    return kept | {tool: _again(pins.get(tool), pin, by) for tool, pin in tools.items()}


def with_approved(pins: Pins, hashes: Mapping[str, str], by: str) -> dict[str, Pin]:
    """Return the pins with these definitions approved, given by tool as hashes of what is offered.

    Raises ConflictError for a hash that isn't offered any more, NotFoundError for a tool that isn't offered.
    """
    for tool, offered in hashes.items():
        pin = pins.get(tool)
        if pin is None or pin.offered_hash is None:
            raise NotFoundError("offered tool", tool, "`starling server show` lists what waits for approval.")
        if pin.offered_hash != offered:
            raise ConflictError(f"{tool} was changed again by its server.", "Look at the new difference first.")
    return {**pins, **{tool: Pin(offered, offered, "approved", by=by) for tool, offered in hashes.items()}}


def stored_row(row: ServerRow, pins: Pins) -> ServerRow:
    """Return the row of a server with these pins: only what is approved is in use.

    What is only gone, and was in use, stays so: the next listing that a person asks for removes it.
    """
    exceptions = {tool: pin for tool, pin in pins.items() if pin.state != "approved" or pin.is_followed}
    tools = {tool: pin.approved_hash for tool, pin in pins.items() if pin.state == "approved" and pin.approved_hash}
    tools |= {tool: row.tools[tool] for tool, pin in pins.items() if pin.state == "gone" and tool in row.tools}
    return replace(row, pins=exceptions, tools=tools)


def _again(pin: Pin | None, approved: str, by: str) -> Pin:
    if pin is not None and pin.state == "approved" and pin.approved_hash == approved:
        return pin
    return Pin(approved, approved, "approved", by=by)


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
            _log.info("the tools of MCP server %s can't be compared with the approved ones: %s", name, error)
            return {}
        if found is None:
            return {}
        row, after, _ = found
        if after.row != row:
            is_waiting = name in self._latest
            self._latest[name] = config_hash, listed
            if not is_waiting:
                task = asyncio.get_running_loop().create_task(self._store(name), name=f"store tools of {name}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return {tool: pin for tool, pin in row.tools.items() if after.row.tools.get(tool, pin) != pin}

    def expect_changes(self, name: str) -> None:
        """Store the next difference of a server, however short ago the last one was."""
        self._again.pop(name, None)

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
        offer = Answer(row, config, listed), Occasion(config.options.pins, row.source, live=True)
        [after] = await self._approved.of([offer])
        return row, after, known

    async def _store(self, name: str) -> None:
        await asyncio.sleep(_STORE_DELAY_SECONDS)
        config_hash, listed = self._latest.pop(name)
        try:
            while found := await self._compared(name, config_hash, listed):
                row, after, known = found
                is_due = row.tools.keys() - after.row.tools.keys() or monotonic() >= self._again.get(name, 0.0)
                if after.row == row or not is_due:
                    return
                if await self._repository.change((), [after], known):
                    self._again[name] = monotonic() + _STORE_AGAIN_SECONDS
                    changed = {tool: pin for tool, pin in after.row.pins.items() if row.pins.get(tool) != pin}
                    told = (f"{tool} is {pin.state}. {pin.reason}".strip() for tool, pin in sorted(changed.items()))
                    shown = "; ".join(told) or "none"
                    _log.warning("MCP server %s offers other tools than were approved: %s", name, shown)
                    return
        except DatabaseUnavailableError as error:
            _log.info("what MCP server %s offers now can't be stored: %s", name, error)
