"""What can't be used any more at a later moment of a run: servers, members of teams and single tools."""

from collections.abc import Mapping
from dataclasses import replace

from brain.registry.availability import Availability
from brain.registry.cards import AgentCard, Roster
from starling.app.access.kill_switches import KnownHalts
from starling.core.teams.stars import StarSpec
from starling.core.tools import ServerListing
from tests.support.scripted_gateway import tool

LOOK, ORDER = tool("look"), tool("order")
BENCH = AgentCard("bench", "specialist", "Looks.", server="bench", tools=(LOOK, ORDER))
SHOP = AgentCard("shop", "specialist", "Sells.", server="shop", tools=(replace(ORDER, server="shop"),))
READY = ServerListing("bench", "", "hash", "ready", tools=(LOOK, ORDER))
DEAD = replace(READY, state="degraded", error="It can't be reached.")


def availability(listings: Mapping[str, ServerListing]) -> Availability:
    return Availability(listings.get, KnownHalts(), "default", "key")


def roster(*cards: AgentCard) -> Roster:
    return Roster({card.name: card for card in cards})


def test_roster_stays_the_same_object_while_everything_works() -> None:
    given = roster(BENCH)

    assert availability({"bench": READY}).now(given) is given


def test_agents_of_servers_that_are_down_or_removed_are_degraded() -> None:
    now = availability({"bench": DEAD}).now(roster(BENCH, SHOP))

    reasons = {name: card.degraded for name, card in now.cards.items()}
    assert reasons == {"bench": "MCP server 'bench': It can't be reached.", "shop": "The server was removed."}


def test_team_works_on_while_one_of_its_servers_does() -> None:
    members = {"looker": replace(BENCH, kind="member"), "seller": replace(SHOP, kind="member")}
    team = AgentCard("team", "team", "Both.", star=StarSpec(name="team", purpose="Both."), members=members)

    now = availability({"bench": DEAD, "shop": READY}).now(roster(team)).cards["team"]

    assert (now.degraded, bool(now.members["looker"].degraded), [one.server for one in now.tools]) == (
        "",
        True,
        ["shop"],
    )


def test_card_names_the_tools_that_can_not_be_called_now() -> None:
    listing = replace(READY, tools=(LOOK,), quarantined={"order": "Its description was changed."})

    shown = availability({"bench": listing}).shown(BENCH).element()

    assert 'unavailable="order: quarantined"' in shown
    assert "order (" not in shown
    assert len(shown) <= 250
