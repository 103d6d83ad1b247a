"""How long it takes to make a star of twelve members and its cards from a spec, among 300 servers."""

import re
from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any, Final

from architect.compiler import compile_team
from architect.spec_format import team_of
from architect.team_world import TeamWorld
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import server_rows
from brain.prompts import lines
from brain.registry.cards import AgentCard
from brain.registry.team_cards import team_card, tools_of
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition

NAMES: Final = ("architect.compile_ms_12",)
_SERVERS: Final = 300
_MEMBERS: Final = 12
_TIMES: Final = 100


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the way from a spec as JSON to the prompt's cards of its members; nothing is cached."""
    setup.say("Compilation of a team")
    cards = _specialists()
    world = {card.name: {tool.name: tool.effect for tool in card.tools} for card in cards.values()}
    document = spec_of([card for card in cards.values() if card.tools][:_MEMBERS])
    whole = _milliseconds(lambda: compiled(document, TeamWorld(world), cards))
    reading = _milliseconds(lambda: team_of(document))
    return [Figure(NAMES[0], whole, "ms", reading, "validation of the same spec")]


def compiled(document: Mapping[str, Any], world: TeamWorld, cards: Mapping[str, AgentCard]) -> str:
    """Return the cards of a team's members as its supervisor reads them, and the hash that it is stored under."""
    star = compile_team(team_of(document), world, creator=None, activator=None)
    team = team_card(star, tools_of(cards))
    return f"{star.hash} {lines(card.element() for card in team.members.values())}"


def spec_of(cards: list[AgentCard]) -> Mapping[str, Any]:
    """Return a spec with a member for each card and an example for each tool that it has."""
    members = [
        {
            "name": f"member_{number}",
            "role": card.description[:300] or card.name,
            "goal": f"Answers what {card.name} can tell, with sources.",
            "backstory": "Has worked with these tools for years, and says so where they can't help.",
            "server": card.name,
            "tools": [tool.full_name for tool in card.tools],
        }
        for number, card in enumerate(cards)
    ]
    tools = [tool.full_name for card in cards for tool in card.tools][:50]
    criteria = [
        {"id": f"uses_{number}", "text": f"It used {tool}.", "kind": "tool_called", "value": tool}
        for number, tool in enumerate(tools)
    ]
    examples = [
        {
            "id": f"case_{number}",
            "input": f"What does {tool} say?",
            "fixtures": [{"tool": tool, "result": {"text": "Nothing new."}}],
            "criteria": [f"uses_{number}"],
            "must_call": [tool],
        }
        for number, tool in enumerate(tools)
    ]
    about = {"name": "bench", "purpose": "Answers from twelve servers.", "instructions": "Ask those who can know."}
    return {**about, "members": members, "criteria": criteria, "examples": examples}


def _specialists() -> Mapping[str, AgentCard]:
    cards: dict[str, AgentCard] = {}
    for number, row in enumerate(server_rows("stabletoolbench", _SERVERS)):
        server = f"{re.sub(r'[^a-z0-9]+', '-', row['server'].casefold())[:40].strip('-')}-{number}"
        named = {re.sub(r"[^A-Za-z0-9_-]+", "_", tool["name"])[:60]: tool["description"] for tool in row["tools"]}
        tools = tuple(
            ToolDefinition(server, name, about, {"type": "object"}, None, Effect.READ, "")
            for name, about in named.items()
        )
        cards[server] = AgentCard(server, "specialist", row["description"], server, tools)
    return cards


def _milliseconds(action: Callable[[], object]) -> float:
    """Return the processor time that an action takes, median."""
    took = list[float]()
    for _ in range(_TIMES):
        begun = process_time()
        action()
        took.append(process_time() - begun)
    return median(took) * 1_000
