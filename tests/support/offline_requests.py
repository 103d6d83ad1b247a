"""Requests for `offline:rules`, built through the real prompts, cards and listings of real servers."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brain.planning.decision import MAY_ASK, OPEN_DECISION, VERDICT, Decision, OpenDecision, Verdict
from brain.prompts import Xml, element, lines, prompt
from brain.registry.cards import BUILTINS, AgentCard
from brain.retrieval.text_similarity import content_words
from starling.core.llm import Message, ModelReply, ModelRequest, ModelRole, ToolSpec
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.infra.llm.offline_model import OfflineModel

DATA = Path(__file__).parents[1] / "data" / "mcp_listings"
LISTINGS: Mapping[str, Any] = json.loads((DATA / "listings.json").read_text("utf-8"))

type Call = tuple[str, Mapping[str, object], str, str]  # name, arguments, result, status


def answer(request: ModelRequest) -> ModelReply:
    return asyncio.run(OfflineModel().respond(request))


def tools_of(server: str) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(tool["name"], tool["description"], tool["input_schema"]) for tool in LISTINGS[server]["tools"]
    )


def card(server: str, tools: Sequence[ToolSpec], degraded: str = "") -> AgentCard:
    definitions = tuple(
        ToolDefinition(server, tool.name, tool.description, tool.parameters, None, Effect.READ, "0") for tool in tools
    )
    name = f"mcp_agent_{server.replace('-', '_')}"
    known = LISTINGS.get(server, {"description": f"MCP server {server}"})
    return AgentCard(name, "specialist", known["description"], server, definitions, degraded=degraded)


CARDS = [card(server, tools_of(server)) for server in LISTINGS]


def decide(
    request: str,
    cards: Sequence[AgentCard] = CARDS,
    plan: Sequence[Xml] = (),
    state: str = "{}",
    history: Xml | str = "",
) -> Decision:
    messages = prompt("supervisor").fill(
        user_request=request,
        session_history=history,
        asking=MAY_ASK,
        looking="",
        clarifications="",
        agents=lines(one.element(" ".join(content_words(request))) for one in (*cards, *BUILTINS)),
        current_plan=lines(plan),
        state_context=state,
    )
    reply = answer(ModelRequest(ModelRole.REASONING, messages, response=OPEN_DECISION))
    decision = OpenDecision.model_validate_json(reply.content)
    assert not decision.question
    return decision


def placed(decision: Decision) -> list[str]:
    """Return the servers that got tasks, in order."""
    return [task.agent.removeprefix("mcp_agent_") for task in decision.selected_agents]


def select_calls(
    tools: Sequence[ToolSpec], task: str, *, request: str = "", state: str = "{}", more: Sequence[Message] = ()
) -> ModelReply:
    messages = prompt("specialist").fill(
        server="x", about="", user_request=request or task, task_id="t1", task=task, state_context=state
    )
    return answer(ModelRequest(ModelRole.ROUTER, (*messages, *more), tools=tuple(tools)))


def calls(reply: ModelReply) -> list[tuple[str, Mapping[str, object]]]:
    return [(call.name, dict(call.arguments or {})) for call in reply.tool_calls]


def review(task: str, made: Sequence[Call], output: str | None = None, agent: str = "mcp_agent_x") -> Verdict:
    said = "\n".join(result for _, _, result, _ in made) if output is None else output
    elements = [
        element(
            "call",
            Xml(element("arguments", json.dumps(dict(arguments))) + element("result", result)),
            name=name,
            status=status,
        )
        for name, arguments, result, status in made
    ]
    messages = prompt("reflection").fill(
        user_request=task, task_id="t1", agent=agent, task=task, tool_calls=lines(elements), output=said
    )
    reply = answer(ModelRequest(ModelRole.REASONING, messages, response=VERDICT))
    return Verdict.model_validate_json(reply.content)


def compose_answer(results: Sequence[str], degraded: Sequence[tuple[str, str]] = ()) -> str:
    messages = prompt("qa").fill(
        user_request="x",
        session_history="",
        results=lines(
            element("result", text, task_id=f"t{at}", agent="a", status="approved", citation=str(at))
            for at, text in enumerate(results, start=1)
        ),
        degraded=lines(element("part", part, reason=reason) for part, reason in degraded),
        assumptions="",
    )
    return answer(ModelRequest(ModelRole.REASONING, messages)).content
