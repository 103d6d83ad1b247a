"""From listings to an epoch, and from an epoch to the roster of a run."""

from collections.abc import Iterable, Mapping
from typing import Any

from brain.prompts import versions
from brain.registry.cards import BUILTINS, AgentCard, Roster
from brain.registry.manifest import Epoch, Manifest, ServerEntry, ToolPin
from brain.registry.repository import EpochRepository
from starling.core.tools import ServerListing, ToolDefinition

_EPOCHS_KEPT = 16
_BUILTINS = {card.name: card for card in BUILTINS}


def specialist_name(server: str) -> str:
    """Return the name of the agent that is made for a server."""
    return f"mcp_agent_{server}"


class Registry:
    """Publishes epochs and hands out their rosters, built once each."""

    def __init__(self, repository: EpochRepository) -> None:
        self._repository = repository
        self._rosters: dict[int, Roster] = {}

    async def publish(self, listings: Iterable[ServerListing]) -> Epoch:
        """Make the epoch of these servers the active one; its number stays where nothing changed."""
        return await self._repository.publish(Manifest.of(listings, _BUILTINS, versions()))

    async def roster(self, epoch: int) -> Roster:
        """Return the roster of an epoch. Raises NotFoundError."""
        if epoch not in self._rosters:
            manifest = (await self._repository.get(epoch)).manifest
            definitions = await self._repository.definitions(manifest)
            self._rosters[epoch] = _roster(manifest, definitions)
            for old in sorted(self._rosters)[:-_EPOCHS_KEPT]:
                del self._rosters[old]
        return self._rosters[epoch]


def _roster(manifest: Manifest, definitions: Mapping[tuple[str, str], Mapping[str, Any]]) -> Roster:
    cards = [_specialist(server, entry, definitions) for server, entry in manifest.servers.items()]
    cards += [_BUILTINS[name] for name in manifest.builtins if name in _BUILTINS]
    return Roster({card.name: card for card in cards})


def _specialist(server: str, entry: ServerEntry, definitions: Mapping[tuple[str, str], Mapping[str, Any]]) -> AgentCard:
    tools = tuple(
        _tool(server, name, pin, definitions[server, name])
        for name, pin in entry.tools.items()
        if (server, name) in definitions
    )
    return AgentCard(specialist_name(server), "specialist", entry.description or server, server, tools)


def _tool(server: str, name: str, pin: ToolPin, definition: Mapping[str, Any]) -> ToolDefinition:
    return ToolDefinition(
        server=server,
        name=name,
        description=definition.get("description") or "",
        input_schema=definition.get("inputSchema") or {"type": "object"},
        output_schema=definition.get("outputSchema"),
        effect=pin.effect,
        hash=pin.hash,
    )
