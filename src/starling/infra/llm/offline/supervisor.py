"""The supervisor's decision: assigns the parts of a request to the agents whose tools share most words with them."""

import re
from collections.abc import Sequence
from typing import Any

from starling.infra.llm.offline.language import GREETINGS, POLITE, implied, masked, only_asks, opening, stems, values_of
from starling.infra.llm.offline.matching import Definition, definition
from starling.infra.llm.offline.prompt_parsing import Element, parse_json

_BOUNDARY = re.compile(r"[.!?;](?=\s|$)|\n|(?P<join>,\s+(?:and|then)\s+|\s+(?:and|then)\s+|,\s+)", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:ask|use|tell) (?:the )?(?:team )?([\w-]+)(?: team)?(?::| to\b)\s*(.+)", re.IGNORECASE | re.DOTALL
)
_TEAM_WISH = re.compile(r"(?i)(?:build|create|design|make|set up|i (?:want|need)) (?:me )?an? (?:\w+ )?team\b")
_TOOL = re.compile(r"([\w./:-]+)(?:\s\((.*?)\))?(?=,\s|\.?\s*$)", re.DOTALL)
_NO_MODEL = "offline:rules matches tools to requests and knows nothing else; no language model is configured"
_HELLO = "Hello. I am Starling, running on offline:rules, which only matches requests to tools."
_MOST_CUTS = 60


def decide(prompt: Element) -> dict[str, Any]:
    """Return the decision for a supervisor prompt, in the form of its response schema."""
    shown, request = prompt.child("agents").children("agent"), prompt.child("user_request").text
    agents = [agent for agent in shown if agent.get("kind") != "builtin"]
    if planned := [task for task in prompt.child("current_plan").children("task") if task.get("id") and task.text]:
        return _replan(planned, parse_json(prompt.child("state_context").text))
    if _TEAM_WISH.match(POLITE.sub("", request, count=1)) and "architect" in [agent.get("name") for agent in shown]:
        return _decision([{"task_id": "t1", "agent": "architect", "task": request, "depends_on": []}], [], "")
    parts = _parts(request, agents)
    parts = [part for part in parts if values_of(part) or not stems(part) <= GREETINGS]
    tasks, unserved = list[dict[str, Any]](), list[dict[str, str]]()
    changes = list[str]()  # later parts wait for those that may change something
    for part in parts:
        named = _NAMED.fullmatch(POLITE.sub("", part, count=1))
        own = [agent for agent in agents if named and agent.get("name").casefold() == named[1].casefold()]
        task = named[2] if named and own else part
        agent, reason = _agent_for(task, own or agents, least=0 if own else 1)
        if reason:
            unserved.append({"part": part, "reason": reason})
            continue
        tasks.append({"task_id": f"t{len(tasks) + 1}", "agent": agent, "task": task, "depends_on": [*changes]})
        changes += [] if only_asks(task) else [f"t{len(tasks)}"]
    hello = f"{_HELLO} Agents: {', '.join(agent.get('name') for agent in agents) or 'none yet'}."
    return _decision(tasks, unserved, "" if parts else hello)


def _parts(request: str, agents: Sequence[Element]) -> list[str]:
    """Return the parts of a request: sentences, and what follows a comma or conjunction if it is a request too."""
    orders = frozenset[str]().union(*(tool.verbs for agent in agents for tool in _tools(agent)))
    orders -= {""}  # of a tool that a card has no room to describe
    hidden, start, found = masked(request), 0, list[str]()
    for cut in list(_BOUNDARY.finditer(hidden))[:_MOST_CUTS]:
        rest = _BOUNDARY.split(hidden[cut.end() :], maxsplit=1)[0]
        another = only_asks(rest) or opening(rest) in orders or (len(cut[0].split()) > 1 and stems(rest))
        if cut["join"] is None or another:
            found.append(request[start : cut.start()].strip())
            start = cut.end()
    return [part for part in (*found, request[start:].strip()) if part]


def _tools(agent: Element) -> list[Definition]:
    listed: list[tuple[str, str]] = _TOOL.findall(agent.text.partition("Tools:")[2].strip())
    return [definition(name, about) for name, about in listed]


def _agent_for(text: str, agents: Sequence[Element], least: int) -> tuple[str, str]:
    """Return the name of the agent that fits a part best, with a score of `least` or more, or why there is none."""
    best = max(agents, key=lambda agent: (_score(text, agent), agent.get("state") == "ready"), default=None)
    if best is None or _score(text, best) < least:
        return "", f"No agent here has a tool for this ({_NO_MODEL})."
    return best.get("name"), f"{best.get('name')} is degraded: {best.text}" * (best.get("state") != "ready")


def _score(text: str, agent: Element) -> float:
    """Return how many words a part shares with an agent's best tool, those of its name twice, and with the agent."""
    wanted, paths, tools = stems(masked(text)), implied(text), _tools(agent)
    own = len(wanted & stems(f"{agent.get('name')} {agent.text.partition('Tools:')[0]}"))
    fitting = [tool for tool in tools if wanted & (tool.name | tool.about)]
    scores = [len(wanted & tool.name) + len(wanted & (tool.name | tool.about)) for tool in fitting]
    named = max((len(paths & tool.name) for tool in fitting), default=0)
    return max(scores, default=0 if tools else own) + named / 2 + own / 4


def _replan(planned: Sequence[Element], state: Any) -> dict[str, Any]:
    """Return the decision for an existing plan: what failed, and what needs it, is not answered."""
    results: list[dict[str, str]] = state["results"] if state and "results" in state else []
    reasons = {result["task_id"]: result["reason"] for result in results}
    tasks, unserved = list[dict[str, Any]](), list[dict[str, str]]()
    dropped = set[str]()
    for task in planned:
        key, needs = task.get("id"), re.findall(r"[\w-]+", task.get("depends_on"))
        if task.get("status") in ("failed", "rejected") or dropped.intersection(needs):
            dropped.add(key)
            unserved.append({"part": task.text, "reason": reasons.get(key) or "It needs a result that failed."})
        elif task.get("status") not in ("approved", "succeeded"):
            tasks.append({"task_id": key, "agent": task.get("agent"), "task": task.text, "depends_on": needs})
    return _decision(tasks, unserved, "")


def _decision(tasks: list[dict[str, Any]], unserved: list[dict[str, str]], reply: str) -> dict[str, Any]:
    placed = "; ".join(f"{task['agent']}: {task['task']}" for task in tasks) or "No task is left to assign"
    return {
        "thought_process": f"{placed}. Parts that can't be served: {len(unserved)}.",
        "plan": [task["task"] for task in tasks],
        "selected_agents": tasks,
        "reply": reply,
        "unserved": unserved,
        "is_request_satisfied": not tasks and not unserved,
    }
