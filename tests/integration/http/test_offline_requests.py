"""`offline:rules` over real servers: requests in its reach are answered, all others are never answered wrongly."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.conftest import LiveApi, running_api
from tests.support.reference_servers import ReferenceServers
from tests.support.sse import Event, read_events

_FILE = Path(__file__).parents[2] / "data/offline_requests/requests.jsonl"
_AT_ONCE = 8
_SHARE_ANSWERED = 0.75


@dataclass(frozen=True, slots=True)
class _Answer:
    row: Mapping[str, Any]
    status: str
    reply: str
    tools: frozenset[str]

    @property
    def is_complete(self) -> bool:
        """Whether the request was answered by the right tools with what a right answer contains."""
        return self.status == "succeeded" and self.is_correct and "Not answered" not in self.reply

    @property
    def is_correct(self) -> bool:
        called_others = self.tools - set(self.row["tools"])
        return not called_others and all(text in self.reply for text in self.row["contains"])

    @property
    def is_refusal(self) -> bool:
        """Whether the part out of reach was refused by name, and nothing was called for it."""
        refused = "Not answered" in self.reply if self.row["contains"] else self.status == "failed"
        return refused and self.is_correct and self.row["names"].casefold() in self.reply.casefold()

    def __str__(self) -> str:
        return f"{self.row['id']} {self.row['request']!r}: {self.status}, {sorted(self.tools)}\n  {self.reply}"


async def _ask(api: LiveApi, row: Mapping[str, Any], places: Mapping[str, str], slots: asyncio.Semaphore) -> _Answer:
    request: str = row["request"]
    contains: list[str] = row["contains"]
    for name, place in places.items():
        request = request.replace(f"{{{name}}}", place)
        contains = [text.replace(f"{{{name}}}", place) for text in contains]
    async with slots:
        events = await api.ask(request)
    done = events[-1].data
    tools = frozenset(event.data["name"] for event in events if event.type == "tool_start")
    return _Answer({**row, "contains": contains}, done["status"], done["reply"], tools)


async def _answers(api: LiveApi, places: Mapping[str, str]) -> Sequence[_Answer]:
    rows = [json.loads(line) for line in _FILE.read_text("utf-8").splitlines()]
    slots = asyncio.Semaphore(_AT_ONCE)
    return await asyncio.gather(*(_ask(api, row, places, slots) for row in rows))


async def test_offline_model_answers_supported_requests_and_names_the_unsupported_parts(
    database_url: str, tmp_path: Path
) -> None:
    servers = ReferenceServers(tmp_path)
    servers.create()

    async with running_api(database_url, tmp_path, servers.configuration()) as api:
        answers = await _answers(api, servers.places)

    in_reach = [answer for answer in answers if answer.row["in_reach"]]
    answered = [answer for answer in in_reach if answer.is_complete]
    wrong = [answer for answer in in_reach if answer.status == "succeeded" and not answer.is_complete]
    wrong += [answer for answer in answers if not answer.row["in_reach"] and not answer.is_refusal]
    assert wrong == [], "\n".join(map(str, wrong))
    assert len(answered) >= _SHARE_ANSWERED * len(in_reach), f"{len(answered)} of {len(in_reach)}"


GOAL = "Build me a team that watches this machine's health and tells the current time in a time zone"


def case(request: str, text: str) -> dict[str, object]:
    said = {"id": "said", "kind": "text_contains", "text": "It is said.", "value": text}
    return {"input": request, "criteria": [said]}


CASES = [case("How much memory is free?", "available bytes"), case("What time is it in Lima?", "America/Lima")]


async def built(api: LiveApi, goal: str) -> list[Event]:
    body = {"goal": goal, "name": "watch", "cases": CASES}
    run_id = (await api.post("/v1/teams", json=body, status=202))["run_id"]
    async with api.client.get(f"/v1/runs/{run_id}/events") as response:
        return [event async for event in read_events(response)]


def of(events: list[Event], kind: str) -> list[dict[str, object]]:
    return [event.data for event in events if event.type == kind]


async def test_goal_of_read_tools_becomes_an_active_team_that_answers(database_url: str, tmp_path: Path) -> None:
    reference = ReferenceServers(tmp_path)
    reference.create()
    every_server = reference.configuration()
    servers = {name: every_server[name] for name in ("time", "system_health", "git")}
    async with running_api(database_url, tmp_path, servers) as api:
        events = await built(api, GOAL)
        used = await api.ask("Use watch: show the load")

    assert [one["findings"] for one in of(events, "checks")] == [[]]
    proofs = of(events, "proof")
    assert [(one["case"], one["passed"], one["counts"], one["simulated"]) for one in proofs] == [
        ("case_1", True, True, 0),
        ("case_2", True, True, 0),
    ]
    assert [one["state"] for one in of(events, "published")] == ["active"], events[-1].data
    assert [one["agent"] for one in of(used, "task_start")] == ["watch", "system_health"]
    assert used[-1].data["status"] == "succeeded"


@pytest.mark.asyncio(loop_scope="module")
async def test_wish_for_a_team_is_given_to_the_architect_and_gaps_are_reported(api: LiveApi) -> None:
    events = await api.ask("Please build me a team that orders pizzas and shows how much memory is available")

    assert [one["agent"] for one in of(events, "task_start")] == ["architect"]
    assert [one["missing"] for one in of(events, "design")] == [
        [{"part": "orders pizzas", "nearest": ["system_health"]}]
    ]
    assert "orders pizzas" in str(events[-1].data)
