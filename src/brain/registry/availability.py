"""Which agents and tools of a run can't be used now: servers, quarantine and kill switches at each moment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from brain.registry.cards import AgentCard, Roster, with_members
from starling.core.tools import Halts, ServerListing

_REMOVED = "The server was removed."


@dataclass(frozen=True, slots=True)
class Availability:
    """Tells what of a roster can't work now. `caller` is the key that the run was requested with."""

    listing: Callable[[str], ServerListing | None]
    halts: Halts
    tenant: str
    caller: str

    def degraded_servers(self, roster: Roster) -> dict[str, str]:
        """Return why servers of agents are down, removed or switched off, by server."""
        names = {name for card in roster.cards.values() for name in card.servers}
        found = {name: why for name in names if (why := self._why_down(name))}
        return found | roster.halted_servers(self.halts, self.tenant, self.caller)

    def _why_down(self, server: str) -> str:
        listing = self.listing(server)
        if listing is None:
            return _REMOVED
        if listing.state != "degraded":
            return ""
        return listing.error if server in listing.error else f"MCP server {server!r}: {listing.error}"

    def switched_off(self, roster: Roster) -> frozenset[str]:
        """Return the names of the agents that a kill switch stops, also by one of their servers."""
        stopped = roster.halted_servers(self.halts, self.tenant, self.caller)
        named = self.halts.named("agent", self.tenant)
        if not stopped and not named:
            return frozenset()
        cards = roster.cards.items()
        return frozenset(name for name, card in cards if name in named or stopped.keys() & set(card.servers))

    def now(self, roster: Roster) -> Roster:
        """Return the roster with what went down since it was made; the same one where nothing did.

        What was down then stays so: additions reach a run only through its epoch.
        """
        down = self.degraded_servers(roster)
        cards = {name: _as_now(card, down) for name, card in roster.cards.items()} if down else roster.cards
        changed = any(card is not roster.cards[name] for name, card in cards.items())
        return (Roster(cards) if changed else roster).halted(self.halts.named("agent", self.tenant))

    def shown(self, card: AgentCard) -> AgentCard:
        """Return a card with those of its tools that can't be called now, which are quarantined or removed."""
        listing = self.listing(card.server) if card.server and not card.degraded else None
        if listing is None:
            return card
        offered = {tool.name for tool in listing.tools}
        lost = {
            tool.name: "quarantined" if tool.name in listing.quarantined else "removed"
            for tool in card.tools
            if tool.name not in offered
        }
        if lost and len(lost) == len(card.tools):
            each = ", ".join(f"{name}: {why}" for name, why in lost.items())
            return replace(card, degraded=f"None of its tools can be called now ({each}).")
        return replace(card, lost=lost) if lost else card


def _as_now(card: AgentCard, down: Mapping[str, str]) -> AgentCard:
    if card.degraded or not down.keys() & set(card.servers):
        return card
    if card.members:
        return with_members(card, {name: _as_now(member, down) for name, member in card.members.items()})
    return replace(card, degraded=" ".join(down[name] for name in card.servers if name in down))
