"""The supervisor node: which agents it is shown, and when it is asked once more because of agents that were found."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from brain.registry.cards import AgentCard
from brain.state import initial_state
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.errors import LLMConnectionError
from tests.support.in_memory_run import make_execution, stored_interrupt
from tests.support.model_documents import decision_json, task
from tests.support.supervisor_steps import decide, supervisor, suspended

WEATHER = ("snow", "rain", "wind", "storms", "fog", "hail", "frost", "clouds")
MANY = [AgentCard(f"mcp_agent_{topic}", "specialist", f"Forecasts of {topic}", topic) for topic in WEATHER]
HELLO = decision_json(reply="Hello.")
TO_RAIN, TO_STORMS = (decision_json(task("t1", f"mcp_agent_{topic}")) for topic in ("rain", "storms"))
RAIN_AND_WIND = "Forecasts of rain and wind, please."


class AwayEmbedder:
    """An embedder whose endpoint can't be reached."""

    name = "away:model"
    dimensions = 0

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        raise LLMConnectionError(self.name, "it is away.")

    async def kept(self, tenant: str, texts: Sequence[str]) -> Mapping[str, Vector]:
        return {}

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        return await self.embed(texts)

    async def former(self, texts: Mapping[str, Sequence[str]]) -> CachingEmbedder | None:
        return None

    async def close(self) -> None:
        """Nothing is open."""


def shown(prompt_text: str) -> list[str]:
    """The specialists that a prompt of the supervisor shows, in order."""
    return re.findall(r'<agent name="mcp_agent_(\w+)"', prompt_text)


async def test_decision_sees_the_agents_that_fit_and_how_many_there_are() -> None:
    _, execution = await decide(HELLO, state=RAIN_AND_WIND, agents=MANY, node=supervisor(shortlist=2))

    seen = execution.model.prompts[0]
    assert set(shown(seen)) == {"rain", "wind"}
    assert "5 of 11 agents" in seen
    assert 'name="generalist"' in seen
    assert "look_for" in execution.model.requests[0].messages[0].content


@pytest.mark.parametrize(("teams", "specialists"), [(9, 4), (1, 5)])
async def test_last_places_are_for_the_teams_that_fit_best(teams: int, specialists: int) -> None:
    crews = [
        AgentCard(f"crew_{number}", "team", "Forecasts of rain and wind" + " etc." * number) for number in range(teams)
    ]
    looking = decision_json(look_for=["hail"])

    _, execution = await decide(
        looking, TO_RAIN, state=RAIN_AND_WIND, agents=[*crews, *MANY], node=supervisor(shortlist=6)
    )

    for seen, best in zip(execution.model.prompts, ("rain", "hail"), strict=True):
        names = re.findall(r'<agent name="(?:mcp_agent_)?(\w+)" kind="(?:specialist|team)"', seen)
        assert (names[0], len(names)) == (best, 6)
        assert names[specialists:] == [crew.name for crew in crews[: 6 - specialists]]


async def test_embedder_that_is_away_leaves_one_warning_and_agents_found_by_words() -> None:
    node = supervisor(embedder=AwayEmbedder(), shortlist=1)

    update, execution = await decide(
        decision_json(look_for=["storms"]), TO_STORMS, state="Forecasts of rain, please.", agents=MANY, node=node
    )

    assert execution.warnings == ["embeddings_unavailable"]
    assert [shown(text) for text in execution.model.prompts] == [["rain"], ["storms"]]
    assert [one["agent"] for one in update["tasks"]] == ["mcp_agent_storms"]


async def test_named_agents_and_those_of_the_last_turn_are_seen_too() -> None:
    text = "Ask mcp_agent_hail and frost about rain and more rain."

    _, execution = await decide(
        HELLO, state=text, agents=MANY, recent_agents=["mcp_agent_fog", "gone"], node=supervisor(shortlist=1)
    )

    assert set(shown(execution.model.prompts[0])) == {"rain", "hail", "frost", "fog"}


async def test_small_roster_is_seen_whole_and_nothing_is_looked_for() -> None:
    _, execution = await decide(HELLO, state="Forecasts of rain, please.", agents=MANY)

    [request] = execution.model.requests
    assert shown(execution.model.prompts[0]) == list(WEATHER)
    assert " agents\n" not in execution.model.prompts[0]
    assert "look_for" not in json.dumps(request.response and request.response.schema)


async def test_what_is_looked_for_is_found_and_the_supervisor_asked_once_more() -> None:
    looking = decision_json(look_for=["storms at sea"], plan=["watch the frost"])
    again = decision_json(task("t1", "mcp_agent_storms"), look_for=["more of it"])

    update, execution = await decide(
        looking, again, state="Is it safe to sail?", agents=MANY, node=supervisor(shortlist=2)
    )

    assert update["next_step"] == ["t1"]
    assert {"storms", "frost"} <= set(shown(execution.model.prompts[1]))
    assert len(execution.model.requests) == 2


@pytest.mark.parametrize(
    ("request_text", "second", "agents", "calls"),
    [
        pytest.param("Rain and wind?", [TO_STORMS], ["storms"], 2, id="not shown"),
        pytest.param("Rain and storms?", [], ["rain"], 1, id="all shown"),
        pytest.param("Rain and wind?", [LLMConnectionError("m", "it is away.")], ["rain"], 2, id="no answer"),
    ],
)
async def test_supervisor_is_asked_once_more_where_the_best_agent_for_a_step_was_not_shown(
    request_text: str, second: list[Any], agents: list[str], calls: int
) -> None:
    first = decision_json(task("t1", "mcp_agent_rain"), plan=["forecast the rain", "forecast of storms"])

    update, execution = await decide(first, *second, state=request_text, agents=MANY, node=supervisor(shortlist=2))

    assert [one["agent"].removeprefix("mcp_agent_") for one in update["tasks"]] == agents
    assert len(execution.model.requests) == calls


BETTER = [*MANY, replace(MANY[0], name="best", server="rain", description="Forecast the rain")]


async def test_decision_of_an_earlier_version_is_not_asked_again_for_its_steps() -> None:
    plan, node = decision_json(task("t1", "mcp_agent_rain"), plan=["forecast the rain"]), supervisor(shortlist=1)
    _, first = await decide(plan, state=RAIN_AND_WIND, agents=MANY, node=node)

    update, resumed = await decide(state=RAIN_AND_WIND, agents=BETTER, node=node, after=first)

    assert (update["next_step"], resumed.model.requests) == (["t1"], [])


async def test_question_that_waits_is_not_decided_anew_when_a_better_agent_for_its_steps_has_come() -> None:
    state = initial_state(RAIN_AND_WIND)
    first = make_execution(decision_json(question="Where?", plan=["forecast the rain"]), agents=MANY)
    waits = await suspended(first, state, shortlist=1)
    [asked] = first.events("clarification")
    waiting = stored_interrupt(asked, "clarification", "clarification/supervisor/1", state="open")
    resumed = make_execution(agents=BETTER, after=first, interrupts=[waiting])

    assert await suspended(resumed, state, shortlist=1) == waits
    assert resumed.model.requests == []


async def test_resumed_decision_sees_the_same_agents_without_a_search() -> None:
    text = "Is it safe to sail in the rain?"
    _, first = await decide(
        decision_json(look_for=["storms"]), TO_STORMS, state=text, agents=MANY, node=supervisor(shortlist=2)
    )

    update, resumed = await decide(state=text, agents=MANY[::-1], node=supervisor(shortlist=1), after=first)

    assert (update["next_step"], resumed.model.requests, resumed.warnings) == (["t1"], [], [])


async def test_unknown_agent_of_many_names_near_matches_only() -> None:
    many = [replace(MANY[0], name=f"mcp_agent_snow_{number}", server=f"snow_{number}") for number in range(40)]
    wrong = decision_json(task("t1", "mcp_agent_snw_12"))

    _, execution = await decide(wrong, wrong, state="Snow?", agents=many)

    told = execution.model.prompts[1]
    assert "Did you mean mcp_agent_snow_12" in told
    assert told.count("mcp_agent_snow_") <= 3
