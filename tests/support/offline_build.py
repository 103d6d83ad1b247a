"""Builds whose designer is `offline:rules`: real prompts, searches by words among the listings of real servers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from architect.design.designer import Designed, design_team
from brain.agents.runtimes.architect import rendered
from brain.prompts import prompt as prompt_of
from brain.prompts import response_schema
from brain.registry.cards import AgentCard, Roster
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from starling.core.clock import SystemClock
from starling.core.llm import ModelRequest, ModelRole
from starling.core.teams.building import BuildRequest, Candidate, Section
from starling.core.teams.spec import TeamSpec
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.infra.llm.offline_model import OfflineModel
from tests.support.in_memory_build import InMemoryBuild, world_of
from tests.support.offline_requests import LISTINGS

_READ = {
    "git": ("git_status", "git_diff_unstaged", "git_diff_staged", "git_diff", "git_log", "git_show", "git_branch"),
    "memory": ("read_graph", "search_nodes", "open_nodes"),
    "sqlite": ("read_query", "list_tables", "describe_table"),
    "filesystem": ("read_text_file", "list_directory", "directory_tree", "search_files", "get_file_info"),
}
_ALL_READ = ("time", "system_health")
_DESCRIPTIONS = {
    "time": "Tells the time in any time zone and converts times between zones.",
    "git": "Works on git repositories: commits and their history, status, differences, branches.",
    "filesystem": "Reads and writes files and directories.",
}


def definitions(*servers: str) -> list[ToolDefinition]:
    """Return the tools of listed servers with the effects that their configuration gives them."""
    return [
        ToolDefinition(server, name, one["description"], one["input_schema"], None, _effect(server, name), "")
        for server in servers
        for one in LISTINGS[server]["tools"]
        for name in [one["name"]]
    ]


def _effect(server: str, name: str) -> Effect:
    return Effect.READ if server in _ALL_READ or name in _READ.get(server, ()) else Effect.UNSAFE


class OfflineBuild(InMemoryBuild):
    """A build's run in memory whose designer is `offline:rules`."""

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        self.asked.append(sections)
        used = prompt_of(prompt)
        request = ModelRequest(
            ModelRole.REASONING, used.fill(sections=rendered(sections)), response=response_schema(prompt, document)
        )
        return document.model_validate(json.loads((await OfflineModel().respond(request)).content))

    async def candidates(self, step: str, texts: Sequence[str], limit: int) -> Sequence[Sequence[Candidate]]:
        finder, roster = AgentFinder(None, SystemClock()), Roster(self._cards())
        search = AgentSearch("t", roster, roster)
        rankings = [await finder.rank(search, text, limit) for text in texts]
        cards = roster.cards
        return [
            [
                Candidate(
                    one.name, "", cards[one.name].description, cards[one.name].tools, one.comparable_score, one.tool
                )
                for one in ranking.agents
            ]
            for ranking in rankings
        ]

    def _cards(self) -> Mapping[str, AgentCard]:
        servers = dict.fromkeys(one.server for one in self.definitions)
        return {name: self._card(name) for name in servers}

    def _card(self, server: str) -> AgentCard:
        tools = tuple(one for one in self.definitions if one.server == server)
        about = _DESCRIPTIONS.get(server, str(LISTINGS[server]["description"]))
        return AgentCard(server, "specialist", about, server, tools)


async def designed(
    goal: str,
    *servers: str,
    base: TeamSpec | None = None,
    reply: str = "",
    **fields: Any,
) -> tuple[Designed, OfflineBuild]:
    """Return the team that `offline:rules` designs for a goal from these servers, and the run that it was built in.

    `fields` are others of the request.
    """
    tools = definitions(*(servers or LISTINGS))
    run = OfflineBuild(tools, reply=reply)
    return await design_team(BuildRequest(goal=goal, **fields), world_of(*tools), base, run), run
