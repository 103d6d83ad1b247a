"""The supervisor's decision: assigns the parts of a request to agents."""

import re
from dataclasses import dataclass, field
from typing import Any

from starling.infra.llm.offline.agent_ranking import AgentRanker, Match, agent_ranker
from starling.infra.llm.offline.prompt_parsing import Element, PromptSections, leaves, parse_json
from starling.infra.llm.offline.request_splitting import RequestPart, split_request
from starling.infra.llm.offline.tokenization import QUESTION_WORDS, STOP_WORDS, tokens
from starling.infra.llm.offline.value_extraction import extract_values, values_of_kind

_DONE = ("approved", "succeeded")
_FAILED = ("failed", "rejected")
_ALTERNATIVE = 0.5  # minimum score of an alternative agent, relative to the best one
_NAMED_AGENTS = 12
_DEMONSTRATIVE = re.compile(r"\b(this|my|our) ([^\W\d_]+)", re.IGNORECASE)
_MODE = re.compile(r"Mode [A-Z]+: [^.]*\.")
_ASK = "Say in a whole sentence what you want to know or have done."
_NO_MODEL = "offline:rules matches tools to requests and knows nothing else; no language model is configured"


@dataclass(slots=True)
class _DecisionDraft:
    tasks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    unserved: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    reasons: list[str] = field(default_factory=list[str])
    mode_hint: str = ""  # tools excluded by the mode of the request

    def add_unserved(self, part: str, reason: str) -> None:
        self.unserved.append({"part": part, "reason": reason})

    def add_task(self, task_id: str, agent: str, task: str, depends_on: list[str]) -> None:
        self.tasks.append({"task_id": task_id, "agent": agent, "task": task, "depends_on": depends_on})


def decide(sections: PromptSections) -> dict[str, Any]:
    """Return the decision for a supervisor prompt, in the form of its response schema."""
    agents = agent_ranker(sections.element("agents").raw)
    state = sections.text("state_context")
    planned = [task for task in sections.children("current_plan", "task") if task.get("id") and task.text]
    if planned:
        return _decide_replan(planned, agents, _failure_reasons(state))
    user_request = sections.text("user_request")
    request = _complete_from_history(user_request, sections.children("session_history", "message"), agents)
    if request is None:
        return _decision(_DecisionDraft(), reply=f"It isn't clear to me what “{user_request}” asks for. {_ASK}")
    if _is_small_talk(request, agents):
        return _decision(_DecisionDraft(), reply=_introduction_text(agents))
    draft = _DecisionDraft(mode_hint=_mode_hint(state))
    for part in split_request(request, agents):
        _assign_part(part, draft, agents)
    return _decision(draft, assumptions=_assumptions(draft))


def _assign_part(part: RequestPart, draft: _DecisionDraft, agents: AgentRanker) -> None:
    """Assign a part to the best agent, or record why no agent can do it."""
    fitting = agents.relevant(part.text)
    ready = [match for match in fitting if match.card.ready]
    if not fitting:
        draft.add_unserved(part.text, f"No agent here has a tool for this ({_NO_MODEL}). {draft.mode_hint}".rstrip())
    elif not ready or ready[0].score < _ALTERNATIVE * fitting[0].score:
        card = fitting[0].card
        draft.add_unserved(part.text, f"{card.name} is {card.state}: {card.summary}")
    else:
        follows = [draft.tasks[-1]["task_id"]] if part.follows and draft.tasks else []
        draft.add_task(f"t{len(draft.tasks) + 1}", ready[0].card.name, part.text, follows)
        draft.reasons.append(_match_reason(ready[0], part.text))


def _match_reason(match: Match, text: str) -> str:
    """Name the words of a text that match the agent, or else its values."""
    words = [word for word in re.findall(r"[^\W_]+", text) if match.matched.intersection(tokens(word))]
    return (
        f"{match.card.name} fits by {', '.join(dict.fromkeys(words or [value.text for value in extract_values(text)]))}"
    )


def _mode_hint(state: str) -> str:
    """Return the first sentence about the mode of the request."""
    hints = [str(leaf) for path, leaf in leaves(parse_json(state)) if path == ("hint",)]
    found = _MODE.search(" ".join(hints))
    return found[0] if found else ""


def _failure_reasons(state: str) -> dict[str, str]:
    """Return the failure reasons in the state by task id."""
    reasons: dict[str, str] = {}
    task_id = ""
    for path, leaf in leaves(parse_json(state)):
        if path == ("results", "task_id"):
            task_id = str(leaf)
        elif path == ("results", "reason"):
            reasons[task_id] = str(leaf)
    return reasons


def _decide_replan(planned: list[Element], agents: AgentRanker, reasons: dict[str, str]) -> dict[str, Any]:
    """Return the decision for an existing plan: try one alternative agent for a failed task, then drop it."""
    draft, dropped = _DecisionDraft(), set[str]()
    for task in planned:
        task_id, needs = task.get("id"), re.findall(r"[\w-]+", task.get("depends_on"))
        if task.get("status") in _DONE:
            continue
        other = _alternative_agent(task, agents) if task.get("status") in _FAILED else task.get("agent")
        if other is None or dropped.intersection(needs):
            dropped.add(task_id)
            draft.add_unserved(task.text, reasons.get(task_id) or "No agent could do it, or it needs what failed.")
        else:
            draft.add_task(task_id, other, task.text, needs)
    return _decision(draft, planned=planned)


def _alternative_agent(task: Element, agents: AgentRanker) -> str | None:
    """Return an alternative agent for a failed task; None if there is none or if one was tried already."""
    fitting = agents.relevant(task.text)
    if not fitting or fitting[0].card.name != task.get("agent"):
        return None
    enough = _ALTERNATIVE * fitting[0].score
    return next((match.card.name for match in fitting[1:] if match.card.ready and match.score >= enough), None)


def _decision(
    draft: _DecisionDraft, reply: str = "", assumptions: list[str] | None = None, planned: list[Element] | None = None
) -> dict[str, Any]:
    statuses = [task.get("status") for task in planned or []]
    approved = sum(status in _DONE for status in statuses)
    texts = [task.text for task in planned or []] or [task["task"] for task in draft.tasks]
    return {
        "thought_process": _thought_process(draft, reply),
        "plan": texts,
        "selected_agents": draft.tasks,
        "reply": reply,
        "assumptions": assumptions or [],
        "unserved": draft.unserved,
        "is_request_satisfied": bool(reply) or (bool(statuses) and approved == len(statuses) and not draft.unserved),
        "is_in_loop": any(status in _FAILED for status in statuses) and not draft.tasks,
        "is_progress_being_made": approved > 0 or not statuses,
    }


def _thought_process(draft: _DecisionDraft, reply: str) -> str:
    if reply:
        return "Nothing here asks for an agent."
    placed = "; ".join(draft.reasons) or f"{len(draft.tasks) or 'no'} tasks are left to give"
    return f"{placed}. {len(draft.unserved)} parts can't be served." if draft.unserved else f"{placed}."


def _assumptions(draft: _DecisionDraft) -> list[str]:
    """Return the assumptions about phrases such as "this disk" or "my load" in tasks without values."""
    unnamed = [task for task in draft.tasks if not extract_values(task["task"])]
    pairs = [(match, task["agent"]) for task in unnamed for match in _DEMONSTRATIVE.finditer(task["task"])]
    found = [
        f"“{match[0]}” is the one that {agent} sees." for match, agent in pairs if tokens(match[2])[0] not in STOP_WORDS
    ]
    return list(dict.fromkeys(found))


def _is_small_talk(request: str, agents: AgentRanker) -> bool:
    """Return whether a request has no subject or is about the assistant itself."""
    words = set(tokens(request))
    subject = agents.subject_terms(request)
    if not subject:
        return not any(value.kind != "name" for value in extract_values(request))
    if agents.best(request) is not None:
        return False
    about_you = bool(words & {"you", "your"}) and bool(words & QUESTION_WORDS)
    return len(subject) == 1 and (about_you or len(tokens(request)) == 1)


def _introduction_text(agents: AgentRanker) -> str:
    """Return a greeting with the available agents."""
    known = [
        f"- {card.summary or ', '.join(card.tools[:3])}" + ("" if card.ready else " (not available now)")
        for card in agents.selectable[:_NAMED_AGENTS]
    ]
    more = [f"- and {len(agents.selectable) - len(known)} more"] * (len(agents.selectable) > len(known))
    can = "These agents can work for you:" if known else "No agent is registered yet, so there is nothing I can do."
    hello = "Hello. I am Starling, running on offline:rules, which only matches requests to tools."
    return "\n".join([f"{hello} {can}", *known, *more])


def _complete_from_history(request: str, history: list[Element], agents: AgentRanker) -> str | None:
    """Return the request; complete one with values only ("and in Tokyo?") by the wording of the previous request.

    None if the previous request has no value of the same kind.
    """
    new = values_of_kind(request, "zone", "path", "name")
    asked = [item.text for item in history if item.get("role") == "user"]
    if agents.subject_terms(request) or not new or not asked:
        return request
    kinds = (new[0].kind, "zone") if new[0].kind == "name" else (new[0].kind,)
    for part in reversed(split_request(asked[-1], agents)):
        for old in values_of_kind(part.text, *kinds):
            return f"{part.text[: old.start]}{' and '.join(value.text for value in new)}{part.text[old.end :]}"
    return None
