"""Whether the supervisor is shown a team for requests to it, and for others a specialist before it: no model."""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from architect.spec_format import read_team
from bench.embedders import static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import public_server_rows, roster_of, team_request_rows, team_rows
from bench.line_process import HERE
from brain.planning.shortlist import Shortlister
from brain.registry.cards import AgentCard, Roster
from brain.registry.team_cards import team_card, tools_of
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from starling.core.agents import Persona
from starling.core.clock import SystemClock
from starling.core.settings.schema import Limits
from starling.core.teams.stars import Member, StarSpec
from starling.core.tracing import NOOP_TRACER

_SERVERS: Final = 300
_LISTINGS: Final = HERE.parent / "tests/data/mcp_listings/listings.json"
_EXAMPLES: Final = HERE.parent / "examples/teams"
_FETCH: Final = "@jiankaitian/servers|Fetch Server"
_PATIENCE_SECONDS: Final = 600  # for the vectors of all agents
_CHOSEN_ON: Final = ("freight_watch", "race_trip", "drug_dossier", "power_saver", "study_planner")
NAMES: Final = tuple(f"routing.{name}{of}" for name in ("team_shown", "specialist_first") for of in ("", "_worst"))

type Row = Mapping[str, Any]


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the shares of the teams that nothing was chosen on, and that of the worst of them."""
    setup.say(f"Requests to teams among {_SERVERS} servers")
    cards = _specialists()
    tools = tools_of(cards)
    examples = [read_team((_EXAMPLES / f"{name}.yaml").read_text("utf-8")) for name in ("research", "coding")]
    stars = [_star(row, cards) for row in (*team_rows(), *(team.model_dump() for team in examples))]
    roster = Roster({**cards, **{star.name: team_card(star, tools) for star in stars}})
    finder = AgentFinder(static_embedder(), SystemClock(), patience=_PATIENCE_SECONDS)
    shortlister = Shortlister(finder, Limits().shortlist, NOOP_TRACER)
    right = dict[tuple[str, str], list[bool]]()
    for row in team_request_rows():
        shown = await shortlister.choose(AgentSearch("bench", roster, roster), [row["text"]], ())
        if shown.warning:
            raise RuntimeError(shown.warning)
        right.setdefault((row["kind"], row["team"]), []).append(_is_right(row, [card.name for card in shown.cards]))
    return [*_figures("team_shown", "for", right), *_figures("specialist_first", "beside", right)]


def _specialists() -> Mapping[str, AgentCard]:
    """Return the servers of the example teams, those that the requests and teams need, and others of the catalogue."""
    public = {row["server"]: row for row in public_server_rows()}
    listings = json.loads(_LISTINGS.read_text("utf-8"))
    own = [listings[name] for name in ("filesystem", "git", "memory")] + [{**public[_FETCH], "server": "fetch"}]
    needed = {server for row in team_request_rows() for server in row.get("specialist", ())}
    needed |= {member["server"] for row in team_rows() for member in row["members"]}
    rows = [*own, *(public[name] for name in sorted(needed)), *(public[name] for name in public if name not in needed)]
    return roster_of(rows[:_SERVERS]).cards


def _star(row: Row, cards: Mapping[str, AgentCard]) -> StarSpec:
    """Return the star of a team. Members whose tools aren't named have all of their server."""
    members = [
        Member(
            name=member["name"],
            persona=Persona(role=member["role"], goal=member["goal"]),
            server=(server := member.get("server")),
            tools=member.get("tools") or tuple(tool.full_name for tool in (cards[server].tools if server else ())),
        )
        for member in row["members"]
    ]
    return StarSpec(name=row["name"], purpose=row["purpose"], members=tuple(members))


def _is_right(row: Row, shown: Sequence[str]) -> bool:
    """Return whether the team is shown, or for a request beside its purpose a right specialist, and before the team."""
    if row["kind"] == "for":
        return row["team"] in shown
    first = next((name for name in shown if name == row["team"] or name in row["specialist"]), row["team"])
    return first != row["team"]


def _figures(name: str, kind: str, right: Mapping[tuple[str, str], Sequence[bool]]) -> list[Figure]:
    shares = {team: fmean(found) for (of, team), found in right.items() if of == kind}
    chosen = [share for team, share in shares.items() if team in _CHOSEN_ON]
    judged = [share for team, share in shares.items() if team not in _CHOSEN_ON]
    against = "the five teams that texts and places were chosen on"
    return [
        Figure(f"routing.{name}", fmean(judged), "", fmean(chosen), against),
        Figure(f"routing.{name}_worst", min(judged), "", min(chosen), against),
    ]
