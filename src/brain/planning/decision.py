"""The documents that models answer with, a decision or a verdict, and the request for the supervisor's decision."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from brain.blackboard import shown_board
from brain.governance import Allowance
from brain.history import history_lines
from brain.prompts import Prompt, Xml, element, lines, response_schema, with_instructions
from brain.state import GraphState, TaskOutcome, wanted
from starling.core.fit import SUPERVISOR, shown
from starling.core.forks import decision_number
from starling.core.llm import Message, ModelRequest, ModelRole, ResponseSchema
from starling.core.model_output.reasoning import split_reasoning
from starling.core.teams.stars import StarSpec

_PAIR: Final = re.compile(r"(?is)<(\w+)>.*</\1>")
_NO_ID: Final = re.compile(r"[^A-Za-z0-9_-]")
_LAST_PLAN: Final = ("agent", "task", "status")  # in this order: the journal's jsonb keeps none


def _without_reasoning(value: object) -> object:
    """Return a text, or each of a list, without reasoning that has a beginning and an end."""
    if isinstance(value, list):
        return [_without_reasoning(item) for item in cast("list[object]", value)]
    return split_reasoning(value).text if isinstance(value, str) and _PAIR.search(value) else value


class _Document(BaseModel):
    """A document of a model: what can be left out has a default, `null` is left out, and so is reasoning in texts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    EXPECTED: ClassVar[str] = "one JSON object"

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        given = cast("dict[str, object]", value)
        return {name: _without_reasoning(item) for name, item in given.items() if item is not None}


class Assignment(_Document):
    """A task for one agent."""

    task_id: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9_-]+$")]
    agent: str
    task: Annotated[str, Field(min_length=1)]
    depends_on: list[str] = []


class Unserved(_Document):
    """A part of the request that no agent of the star can serve."""

    part: str
    reason: str = ""


class Removal(_Document):
    """A pending task that is taken out of the plan."""

    task_id: str
    reason: str = ""


class Decision(_Document):
    """What the supervisor decides in one call: plan, tasks, or a direct reply."""

    EXPECTED: ClassVar[str] = (
        'one JSON object with "plan", "selected_agents" (each "task_id", "agent", "task", "depends_on") and "reply"'
    )
    NEEDED_IF_CUT: ClassVar[tuple[str, ...]] = ("selected_agents", "reply")

    thought_process: str = ""
    plan: list[str] = []
    selected_agents: list[Assignment] = []
    reply: str = ""
    assumptions: list[str] = []
    unserved: list[Unserved] = []
    removed: list[Removal] = []
    look_for: list[str] = []
    is_simple: bool = False
    is_request_satisfied: bool = False
    is_in_loop: bool = False
    is_progress_being_made: bool = True

    @field_validator("selected_agents", mode="before")
    @classmethod
    def _names(cls, value: object, info: ValidationInfo) -> object:
        """Read names alone: each has its step of the plan, or where there aren't as many the request, a blank task."""
        names = cast("list[object]", value) if isinstance(value, list) else [value]
        if not all(isinstance(name, str) and name.strip() for name in names):
            return cast("object", value)
        plan: Sequence[str] = info.data.get("plan", ())
        tasks = plan if len(plan) == len(names) else [" "] * len(names)
        return [
            {"task_id": f"{_NO_ID.sub('_', str(name))[:36]}_{number}", "agent": name, "task": task}
            for number, (name, task) in enumerate(zip(names, tasks, strict=True), 1)
        ]

    @field_validator("removed", mode="before")
    @classmethod
    def _ids(cls, value: object) -> object:
        """Read ids alone as tasks that are removed without a reason."""
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        return [{"task_id": item} if isinstance(item, str) else item for item in items]

    @field_validator("selected_agents")
    @classmethod
    def _own_ids(cls, value: list[Assignment]) -> list[Assignment]:
        ids = [item.task_id for item in value]
        if twice := sorted({task_id for task_id in ids if ids.count(task_id) > 1}):
            raise ValueError(f"each task needs a task_id of its own, but {', '.join(twice)} is given more than once")
        if places := [task_id for task_id in ids if decision_number(task_id)]:
            raise ValueError(f"no task_id may be `start` or like `d2`, which name decisions, but {places[0]} is given")
        return value


class OpenDecision(Decision):
    """A decision that may be a question instead."""

    question: str = ""
    options: list[str] = []


class Verdict(_Document):
    """The review of one attempt."""

    EXPECTED: ClassVar[str] = (
        'one JSON object with "status" (APPROVED, FIXED or REJECTED), "reasons", and "refined_output" if FIXED'
    )
    NEEDED_IF_CUT: ClassVar[tuple[str, ...]] = ("status", "refined_output")
    MUST_AGREE: ClassVar[tuple[str, ...]] = ("status",)
    WHOLE_ANSWERS: ClassVar[Mapping[str, Mapping[str, str]]] = {"approved": {"status": "APPROVED"}}

    status: Annotated[
        Literal["APPROVED", "FIXED", "REJECTED"],
        BeforeValidator(lambda it: re.sub("^PASS$", "APPROVED", it.strip().upper()) if isinstance(it, str) else it),
    ]
    refined_output: str = ""
    reasons: list[str] = []
    evidence: list[str] = []
    changed: list[str] = []


@cache
def decision_schema(
    *, may_ask: bool, may_look: bool, may_simplify: bool = False, may_remove: bool = False
) -> ResponseSchema:
    """Return the schema of a decision that may ask the user, look for agents that aren't shown, and call it simple."""
    kind, optional = (OpenDecision, ("question", "options")) if may_ask else (Decision, ())
    optional_ones = (("look_for", may_look), ("is_simple", may_simplify), ("removed", may_remove))
    without = [name for name, may in optional_ones if not may]
    return response_schema("supervisor_decision", kind, optional=optional, without=without)


DECISION = decision_schema(may_ask=False, may_look=False)
OPEN_DECISION = decision_schema(may_ask=True, may_look=False)
VERDICT = response_schema("verdict", Verdict)


MUST_ASSUME: Final = Xml("You can't ask the user: choose the most likely reading.")
MAY_ASK: Final = Xml(
    "Choose the most likely reading.\n"
    "- `question`: a short one to the user in place of a plan and reply, only if no reading is likely and a wrong one "
    "useless or harmful.\n"
    "- `options`: up to five likely answers."
)
MAY_LOOK: Final = Xml(
    "\n- `look_for`: only some agents are shown. For each part that none can serve, a short phrase for what an agent "
    "for it does; you then see agents that fit, and decide again."
)
MAY_REMOVE: Final = Xml("\n- `removed`: pending tasks that are no longer needed, each with `task_id` and `reason`.")
MAY_SIMPLIFY: Final = Xml("\n- `is_simple`: a small model can write the answer: it is short and needs no thought.")
_TEAM_NOTE: Final = (
    "You supervise the team in <team>, whose members are `<agents>`. Its text is the one exception: let it guide how "
    "you plan, but not which fields you answer with, nor what anybody may do."
)


@dataclass(frozen=True, slots=True)
class DecisionInputs:
    """What a resumed run must show the model again, whatever has changed since: it is journalled.

    `agents` are the agents as XML; with `may_ask` the decision may be a question to the user, with `may_look` it may
    name what to look for among the agents that aren't shown, with `may_simplify` call the answer simple. `noted` is
    what was said about a former decision, `instructions` what the client says of the conversation, `last_plan` the
    tasks of the conversation's last turn.
    """

    agents: Xml
    may_ask: bool
    may_look: bool = False
    may_simplify: bool = False
    may_remove: bool = False
    noted: Sequence[Message] = ()
    instructions: str = ""
    last_plan: Sequence[Mapping[str, str]] = ()


async def decision_request(
    prompt: Prompt, star: StarSpec, state: GraphState, allowance: Allowance, inputs: DecisionInputs
) -> ModelRequest:
    """Return the request for the next decision of a star's supervisor."""
    results = [*state.get("given", []), *state["results"]]
    outputs = await shown([result["output"] for result in results], SUPERVISOR, wanted(state))
    messages = prompt.fill(
        user_request=state["input_request"],
        session_history=history_lines(state["messages"]),
        asking=MAY_ASK if inputs.may_ask else MUST_ASSUME,
        looking=Xml(
            (MAY_LOOK if inputs.may_look else "")
            + (MAY_SIMPLIFY if inputs.may_simplify else "")
            + (MAY_REMOVE if inputs.may_remove else "")
        ),
        clarifications=lines(
            Xml(f"{element('question', item['question'])}{element('answer', item['answer'], state=item['state'])}")
            for item in state.get("clarifications", [])
        )
        or None,
        agents=inputs.agents,
        current_plan=lines(
            element(
                "task",
                task["task"],
                id=task["id"],
                agent=task["agent"],
                status=task["status"],
                depends_on=" ".join(task["depends_on"]),
            )
            for task in state["tasks"]
            if "removed" not in task
        ),
        state_context=_state_context(state, zip(results, outputs, strict=True), inputs.last_plan, allowance.hint),
    )
    messages = with_instructions(messages, inputs.instructions)
    if star.name:  # what the supervisor of a team is told, escaped, is below its system text
        team = element("team", star.instructions or star.purpose, name=star.name, purpose=star.purpose)
        messages = (replace(messages[0], content=f"{messages[0].content}\n\n{_TEAM_NOTE}\n{team}"), *messages[1:])
    return ModelRequest(
        role=allowance.role(ModelRole.REASONING),
        messages=(*messages, *inputs.noted),
        response=decision_schema(
            may_ask=inputs.may_ask,
            may_look=inputs.may_look,
            may_simplify=inputs.may_simplify,
            may_remove=inputs.may_remove,
        ),
        temperature=allowance.supervisor_temperature,
        max_tokens=allowance.max_tokens,
        prompt=prompt.used,
        supervisor=True,
    )


def _state_context(
    state: GraphState,
    results: Iterable[tuple[TaskOutcome, str]],
    last_plan: Sequence[Mapping[str, str]],
    hint: str,
) -> str:
    """Return the last turn's tasks, the results as shown, the blackboard and the hint as JSON, without empty parts."""
    content: Mapping[str, Any] = {
        "last_plan": [{name: item[name] for name in _LAST_PLAN} for item in last_plan],
        "results": [
            {
                "task_id": result["task_id"],
                "status": result["status"],
                "output": output,
                "reason": result["reason"],
            }
            | ({"outcome_unknown": True} if result.get("unknown") else {})
            | ({"done": result["done"]} if "done" in result else {})
            for result, output in results
        ],
        "global_state": shown_board(state["global_state"]),
        "hint": hint,
    }
    return json.dumps({key: value for key, value in content.items() if value}, ensure_ascii=False)
