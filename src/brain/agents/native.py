"""The native runtime: an async loop of model answers and tool calls, replayed from the journal after a crash."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from brain.agents.briefing import prompt_of
from brain.agents.runtime import Produced, ToolUse, Work
from brain.agents.toolbox import CONTINUE, Toolbox
from brain.context import Answer
from brain.side_by_side import side_by_side
from starling.core.errors import LLMInvalidResponse, OutcomeUnknownError
from starling.core.events import ToolResult, ToolStart
from starling.core.llm import Message, ModelRequest, ModelRole, ModelToolCall
from starling.core.runs import Step
from starling.core.tools import Effect, ToolCall, ToolDefinition, ToolOutcome

_STEP_CHARS = 300


@dataclass(frozen=True, slots=True)
class NativeRuntime:
    """Function calling: calls of one answer run in parallel, their results are the attempt's output."""

    async def attempt(self, work: Work) -> Produced:
        """Make one attempt: turns go on while the model asks to `continue`, up to the limit of iterations."""
        toolbox = Toolbox.of(work.card.tools)
        uses: list[ToolUse] = []
        for _ in range(work.context.allowance.tool_iterations):
            position = work.position
            answer = await work.context.ask(work.path, position, _request(work, toolbox))
            work.position += 1
            calls = answer.reply.tool_calls
            work.messages.append(Message("assistant", answer.reply.content, calls))
            wanted = [call for call in calls if call.name != CONTINUE]
            if not wanted:
                work.messages += _results(calls, [])
                return _spoken(answer, uses)
            made = await _call_all(work, toolbox, position, answer, wanted)
            uses += made
            _stop_if_unknown(made)
            work.messages += _results(calls, made)
            if len(wanted) == len(calls):
                break
        return Produced(_output(uses), tuple(uses))


def _request(work: Work, toolbox: Toolbox) -> ModelRequest:
    allowance = work.context.allowance
    return ModelRequest(
        role=allowance.role(ModelRole.ROUTER),
        messages=tuple(work.messages),
        tools=toolbox.specs,
        max_tokens=allowance.max_tokens,
        prompt=prompt_of(work.card).used,
        model=work.card.model,
    )


def _spoken(answer: Answer, uses: Sequence[ToolUse]) -> Produced:
    """An answer without calls: after some, they are the result; before any, the agent says that it can't."""
    if uses:
        return Produced(_output(uses), tuple(uses))
    text = answer.reply.content.strip()
    if not text:
        raise LLMInvalidResponse(answer.reply.model, "it answered with neither a tool call nor a word")
    return Produced(text, unable=True)


def _stop_if_unknown(made: Sequence[ToolUse]) -> None:
    """What may have changed something unseen isn't tried again: the task ends."""
    if cut_off := [use.name for use in made if use.outcome.unknown]:
        raise OutcomeUnknownError(" and ".join(cut_off))


async def _call_all(
    work: Work, toolbox: Toolbox, position: int, answer: Answer, wanted: Sequence[ModelToolCall]
) -> list[ToolUse]:
    """Make the calls of one answer side by side, in any order; each is answered whatever becomes of the others."""
    if not answer.replayed:
        for index, call in enumerate(wanted):
            _announce(work, toolbox, position, index, call)
        await work.context.writer.flush()
    return await side_by_side(
        _use(work, toolbox.tools.get(call.name), call, (position, index), answer.replayed)
        for index, call in enumerate(wanted)
    )


async def _use(
    work: Work, tool: ToolDefinition | None, call: ModelToolCall, place: tuple[int, int], replayed: bool
) -> ToolUse:
    position, index = place
    name = tool.full_name if tool else call.name
    recorded = work.context.journal.find(work.path, "tool", position, index)
    if recorded is not None:
        return ToolUse(name, call.arguments or {}, ToolOutcome(**recorded))
    if tool is not None and replayed and tool.effect is not Effect.READ:
        raise OutcomeUnknownError(name)
    outcome = await _outcome(work, tool, call, place)
    _report(work, name, place, outcome)
    if tool is not None and tool.effect is not Effect.READ:
        await work.context.writer.flush()  # durable before its result is used
    return ToolUse(name, call.arguments or {}, outcome)


async def _outcome(work: Work, tool: ToolDefinition | None, call: ModelToolCall, place: tuple[int, int]) -> ToolOutcome:
    if tool is None:
        return ToolOutcome("failed", f"There is no tool {call.name!r}.", code="not_allowed")
    if call.arguments is None:
        return ToolOutcome("failed", "The arguments weren't a JSON object.", code="invalid_arguments")
    context = work.context
    context.meter.tool_calls += 1
    request = ToolCall(_call_id(work, place), context.run.id, work.path, tool, call.arguments, context.run.grant)
    return await context.gateway.call(request, context.deadline)


def _announce(work: Work, toolbox: Toolbox, position: int, index: int, call: ModelToolCall) -> None:
    tool = toolbox.tools.get(call.name)
    work.context.emit(
        ToolStart(
            name=tool.full_name if tool else call.name,
            args=dict(call.arguments or {}),
            task_id=work.task_id,
            path=work.path,
            call_id=_call_id(work, (position, index)),
        )
    )


def _report(work: Work, name: str, place: tuple[int, int], outcome: ToolOutcome) -> None:
    """Record the result; its event goes with it, so that it is never told twice."""
    position, index = place
    work.context.journal.record(work.path, "tool", asdict(outcome), position, index)
    work.context.emit(ToolResult(name=name, result=outcome.text, call_id=_call_id(work, place), status=outcome.status))
    work.context.writer.step(
        Step(
            type="tool_call",
            description=f"{name}: {outcome.text[:_STEP_CHARS]}",
            metadata={
                "tool_name": name,
                "path": work.path,
                "status": outcome.status,
                "error": outcome.code or None,
                "duration_ms": round(outcome.duration_ms, 1),
            },
        )
    )


def _results(calls: Sequence[ModelToolCall], made: Sequence[ToolUse]) -> list[Message]:
    """Answer every call, as the protocol asks: `continue` too. Ids don't tell calls apart with every endpoint."""
    texts = iter([use.outcome.text for use in made])
    return [Message("tool", "Go on." if call.name == CONTINUE else next(texts), tool_call_id=call.id) for call in calls]


def _output(uses: Sequence[ToolUse]) -> str:
    """The results, as they are: one alone, several each under the call that it comes from."""
    if len(uses) == 1:
        return uses[0].outcome.text
    return "\n\n".join(f"{use.name} {dict(use.arguments)}:\n{use.outcome.text}" for use in uses)


def _call_id(work: Work, place: tuple[int, int]) -> str:
    return f"{work.path}.{place[0]}.{place[1]}"
