"""Texts with what should be found for them: requests with their servers, utterances with their skills."""

import json
import lzma
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, Final

from bench.line_process import HERE
from brain.registry.cards import AgentCard, Roster
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition

_DATA: Final = HERE / "data"


@dataclass(frozen=True, slots=True)
class Request:
    """What a user wrote, and the names of the agents that it needs."""

    text: str
    agents: frozenset[str]
    steps: Sequence[str] = ()  # of a person's plan


@dataclass(frozen=True, slots=True)
class RequestSet:
    """Requests that the agents of `roster` can serve, and those that judge; further agents are distractors."""

    name: str
    roster: Roster
    requests: Sequence[Request]
    judged: Sequence[Request]


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text, and the skill that it is an example of; None where no skill fits."""

    text: str
    skill: str | None


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A task that a call solved, a text near to it that asks for something else, and one that asks for the same."""

    known: str
    tool: str
    arguments: Mapping[str, Any]
    near: str
    paraphrase: str
    reads: bool


@dataclass(frozen=True, slots=True)
class WrittenGoal:
    """A goal for a team, groups of servers that it needs one of each of, and cases: a request, a text of its answer."""

    text: str
    needs: Sequence[frozenset[str]]
    cases: Sequence[tuple[str, str]]


def stabletoolbench(servers: int) -> RequestSet:
    """Return the first servers with the requests that they can serve; those beyond 811 are distractors of Toucan."""
    return _request_set("stabletoolbench", servers)


def metatool(servers: int) -> RequestSet:
    """Return the 199 servers with all their requests; further servers are distractors of Toucan."""
    return _request_set("metatool", servers)


def livemcpbench() -> RequestSet:
    """Return the 70 servers with the 39 conversational requests that need some, each with a person's plan."""
    requests = [
        Request(
            row["query"],
            frozenset(row["servers"]),
            [step for line in row["steps"].splitlines() if (step := line.lstrip("0123456789. ").rstrip())],
        )
        for row in _rows("livemcpbench_requests")
        if row["servers"]
    ]
    return RequestSet("livemcpbench_70", roster_of(_rows("livemcpbench_servers")), requests, requests)


def search_half(requests: Sequence[Request], *, judged: bool) -> Sequence[Request]:
    """Return one half: of even SHA-256, which ADR 0087 chose weights of searches on, or of odd SHA-256."""
    return [one for one in requests if sha256(one.text.encode()).digest()[-1] % 2 == judged]


def design_half(requests: Sequence[Request], *, judged: bool) -> Sequence[Request]:
    """Return one half of those that need several agents: the 1st, 3rd, …, which ADR 0090 chose on, or the others."""
    return [one for one in requests if len(one.agents) > 1][judged::2]


def clinc() -> tuple[Sequence[Utterance], Sequence[Utterance]]:
    """Return the examples of skills, ten of each, and the utterances that are to recall them or nothing."""
    rows = _rows("clinc_utterances")
    stored, asked = ([row for row in rows if row["role"] == role] for role in ("stored", "probe"))
    return [_utterance(row) for row in stored], [_utterance(row) for row in asked]


def clinc_intents(*, judged: bool) -> Sequence[str]:
    """Return the skills of one half: in alphabetical order the 1st, 3rd, …, which cuts are fitted on, or the others."""
    return sorted({one.skill for one in clinc()[0] if one.skill})[judged::2]


def near_misses() -> Sequence[NearMiss]:
    """Return the pairs of near misses, half of them of tools that change something."""
    rows = _rows("near_misses")
    texts = ("known", "near", "paraphrase")
    return [
        NearMiss(
            **{name: row[name] for name in texts},
            tool=row["call"]["tool"],
            arguments=row["call"]["arguments"],
            reads=row["effect"] == "read",
        )
        for row in rows
    ]


def written_goals() -> Sequence[WrittenGoal]:
    """Return 40 goals for teams of public servers of Toucan."""
    return [
        WrittenGoal(
            row["goal"],
            [frozenset(group) for group in row["needs"]],
            [(one["input"], one["text"]) for one in row["cases"]],
        )
        for row in _rows("written_goals")
    ]


def team_rows() -> Sequence[Mapping[str, Any]]:
    """Return ten teams of public servers: name, purpose, members with role, goal and server."""
    return _rows("teams")


def team_request_rows() -> Sequence[Mapping[str, Any]]:
    """Return requests `for` a team and `beside` its purpose, these with the servers of which each serves them."""
    return _rows("team_requests")


def server_rows(name: str, servers: int) -> Sequence[Mapping[str, Any]]:
    """Return the first servers of a set with their tools; those beyond its own are of Toucan."""
    return [*_rows(f"{name}_servers"), *public_server_rows()][:servers]


def public_server_rows() -> Sequence[Mapping[str, Any]]:
    """Return the 866 public servers of Toucan with their tools."""
    return _rows("toucan_servers")


def _request_set(name: str, servers: int) -> RequestSet:
    listed = server_rows(name, servers)
    cards = roster_of(listed).cards
    if len(cards) != servers:
        raise ValueError(f"{name} has {len(cards)} servers with the distractors, not {servers}")
    known = [Request(row["query"], frozenset(row["servers"])) for row in _rows(f"{name}_requests")]
    requests = [one for one in known if one.agents <= cards.keys()]
    return RequestSet(f"{name}_{servers}", Roster(cards), requests, search_half(requests, judged=True))


def roster_of(rows: Iterable[Mapping[str, Any]]) -> Roster:
    """Return the agents of servers with their tools, by the name of the server."""
    return Roster({row["server"]: _card(row) for row in rows})


def _card(row: Mapping[str, Any]) -> AgentCard:
    server = row["server"]
    tools = tuple(
        ToolDefinition(server, tool["name"], tool["description"], {"type": "object"}, None, Effect.READ, "")
        for tool in row["tools"]
    )
    return AgentCard(server, "specialist", row["description"], server, tools)


def _utterance(row: Mapping[str, Any]) -> Utterance:
    return Utterance(row["query"], row["skill"])


@cache
def _rows(name: str) -> list[dict[str, Any]]:
    with lzma.open(_DATA / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
