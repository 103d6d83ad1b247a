"""From what servers offer to what is stored of them: the tools that are approved, and the pins of all."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.pins import Occasion, Pin, Pins, judged, without_approvals
from mcp_gateway.registration.repository import ListedServer, ServerRepository, ServerRow
from starling.core.errors import ConflictError, NotFoundError

_ROLLED_BACK: Final = "It isn't in the epoch that was rolled back to."


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server listed: its row without tools, its configuration, its tools, and how it came to be listed.

    Without `listed` it couldn't be.
    """

    row: ServerRow
    config: ServerConfig
    listed: Listed | None
    occasion: Occasion


class ApprovedTools:
    """Decides by the stored pins which of the listed tools are in use."""

    def __init__(self, repository: ServerRepository) -> None:
        self._repository = repository

    async def of(self, offers: Iterable[Offer]) -> list[ListedServer]:
        """Return what is to be stored for these offers."""
        given = list(offers)
        if not given:
            return []
        pins = await self._repository.pins([offer.row.name for offer in given])
        return [await self._decided(offer, pins.get(offer.row.name, {})) for offer in given]

    async def _decided(self, offer: Offer, pins: Pins) -> ListedServer:
        if offer.listed is None:
            if offer.occasion.keeps_approvals or not pins:
                return ListedServer(offer.row, {})
            waiting = without_approvals(pins)
            return ListedServer(stored_row(offer.row, waiting), {}, waiting)
        name, offered = offer.row.name, offer.listed.tools
        approved = {tool: pin.approved_hash for tool, pin in pins.items() if pin.approved_hash}
        definitions = await self._repository.definitions((name, tool, pin) for tool, pin in approved.items())
        occasion = replace(offer.occasion, first=False) if pins else replace(offer.occasion, moved=False)
        known = {tool: definitions[name, tool] for tool in approved if (name, tool) in definitions}
        found = await asyncio.to_thread(judged, pins, offered, known, occasion)  # long texts take a while
        return ListedServer(stored_row(offer.row, found), offered, found)


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
