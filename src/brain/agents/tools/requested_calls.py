"""The calls that a model answer asks for: which of them are made, and why the others are not."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from brain.agents.tools.note_tool import offers_note
from brain.agents.tools.reading_tools import offers_resources
from brain.agents.tools.toolbox import Toolbox, not_made
from brain.agents.turn.agent_runtime import TaskExecution
from starling.core.artifacts import READ_ARTIFACT
from starling.core.json import canonical
from starling.core.llm import ModelToolCall
from starling.core.model_output.tool_arguments import what_is_wrong
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect
from starling.core.tools import FIND_TOOLS, NOTE, OVER_LIMIT, READ_RESOURCE, ToolCall, ToolOutcome

CALLS_PER_ANSWER: Final = 16  # that one answer of a model may ask for
_ANSWER_TEXT = (
    "Not called: an answer may ask for at most {most} tool calls, and this one asked for {asked}. "
    "Ask for the others in your next answer."
)
_TASK_TEXT = (
    "Not called: a task may make at most {most} tool calls, and this one has made them (limits.tool_calls_per_task)."
)


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call as the model asked for it. `call` is None where it isn't one of a server's tool.

    Then `fault` is the reason why it can't be made; without a fault it is of a built-in tool. `repeats` is the index of
    an equal call of the same answer, which is made in place of this one.
    """

    asked: ModelToolCall
    name: str
    id: str
    index: int
    call: ToolCall | None
    fault: ToolOutcome | None = None
    repeats: int | None = None

    @property
    def changing(self) -> ToolCall | None:
        """The call if its tool may change something."""
        return self.call if self.call is not None and self.call.tool.effect is not Effect.READ else None

    @property
    def effectful(self) -> ToolCall | None:
        """The call if it may change something, and so has a row in the ledger. Those of a trial are not made."""
        return self.changing if self.call is not None and self.call.trial is None else None

    @property
    def is_made(self) -> bool:
        """Whether the call is made, or answered from this process."""
        return self.fault is None and self.repeats is None

    @property
    def refused(self) -> bool:
        """Whether a limit keeps the call from being made."""
        return self.fault is not None and self.fault.code == OVER_LIMIT


def requested_calls(
    execution: TaskExecution, toolbox: Toolbox, position: int, asked: Sequence[ModelToolCall]
) -> list[RequestedCall]:
    """Return the calls of an answer in its order; equal calls that may change something are made once."""
    first: dict[tuple[str, str], int] = {}
    requested: list[RequestedCall] = []
    for index, one in enumerate(asked):
        item = _requested(execution, toolbox, position, index, one)
        if (call := item.changing) is not None:
            earlier = first.setdefault((call.tool.full_name, canonical(call.arguments)), index)
            if earlier != index:
                item = replace(item, call=None, repeats=earlier)
        requested.append(item)
    return requested


def repetitions(requested: Iterable[RequestedCall]) -> Counter[int]:
    """Return how often the call at each index was asked for, for those asked for more than once."""
    counts = Counter(item.repeats for item in requested if item.repeats is not None)
    return Counter({index: count + 1 for index, count in counts.items()})


def within_limits(
    execution: TaskExecution, position: int, requested: Sequence[RequestedCall], limits: Limits, *, replayed: bool
) -> list[RequestedCall]:
    """Return the calls with a fault for each that is over a limit: those of an answer, and those of its task.

    Where the calls were announced by an earlier process, its decision stays: the journal has the first refused call.
    """
    if replayed:
        find = partial(execution.context.journal.find, execution.path, "tool", position)
        stored = ((index, recorded) for index in range(len(requested)) if (recorded := find(index)) is not None)
        refused = ((index, ToolOutcome.from_json(data)) for index, data in stored if data.get("code") == OVER_LIMIT)
        first, fault = next(refused, (len(requested), None))
    else:
        first, fault = _refusal(execution, requested, limits)
    if fault is None:
        return list(requested)
    kept = {item.index for item in requested[:first]}
    return [
        item if item.index < first or item.repeats in kept else replace(item, call=None, fault=fault, repeats=None)
        for item in requested
    ]


def _refusal(
    execution: TaskExecution, requested: Sequence[RequestedCall], limits: Limits
) -> tuple[int, ToolOutcome | None]:
    """Return the index of the first call over a limit and why it is not made."""
    own = [item for item in requested if item.repeats is None]
    left = max(0, limits.tool_calls_per_task - execution.calls_before - execution.calls)
    over_answer = own[CALLS_PER_ANSWER:]
    over_task = [item for item in own if item.fault is None][left:]
    if not over_answer and not over_task:
        return len(requested), None
    first = min(items[0].index for items in (over_answer, over_task) if items)
    of_task = bool(over_task) and over_task[0].index == first
    text, most = (_TASK_TEXT, limits.tool_calls_per_task) if of_task else (_ANSWER_TEXT, CALLS_PER_ANSWER)
    return first, not_made(text.format(most=most, asked=len(requested)), OVER_LIMIT)


def _requested(
    execution: TaskExecution, toolbox: Toolbox, position: int, index: int, asked: ModelToolCall
) -> RequestedCall:
    item = partial(RequestedCall, asked, id=f"{execution.path}.{position}.{index}", index=index)
    built_in = {
        READ_ARTIFACT: bool(execution.artifacts),
        FIND_TOOLS: execution.shown is not None,
        READ_RESOURCE: offers_resources(execution, toolbox),
        NOTE: offers_note(execution, toolbox),
    }
    if built_in.get(asked.name):
        return item(asked.name, call=None)
    if (tool := toolbox.tool(asked.name)) is None:
        return item(asked.name, call=None, fault=not_made(toolbox.unknown(asked.name), "not_allowed"))
    if asked.arguments is None:
        return item(tool.full_name, call=None, fault=not_made(what_is_wrong(asked.raw_arguments)))
    return item(tool.full_name, call=execution.tool_call(tool, asked.arguments, position, index))
