"""The review of an attempt: by rules where they decide, else by a model's verdict."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from brain.agents.turn.agent_runtime import (
    AttemptOutput,
    FinishedCall,
    TaskExecution,
    has_simulated_effects,
    joined_results,
)
from brain.agents.turn.prompt_building import instruction
from brain.interrupts.requests import REPEAT_REFUSED
from brain.planning.decision import VERDICT, Verdict
from brain.prompts import Xml, element, lines
from brain.run.structured_output import ask_for_document
from starling.core.events.run_events import Reflection
from starling.core.fit import REVIEWER, shown
from starling.core.governance import stricter_review
from starling.core.json import JsonObject, canonical
from starling.core.llm import Message, ModelRequest, ModelRole
from starling.core.tool_calls import Observation, ReviewPolicy
from starling.core.tools import ToolOutcome
from starling.core.tracing import VERDICT_SCORE, VERDICT_VALUES, SpanKind, Tracer

_POSITIONS_PER_REVIEW = 4  # in the journal: a verdict and its repair, and the same again for a fixed output

_MOST_EARLIER = 20

type Status = Literal["APPROVED", "FIXED", "REJECTED"]


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """The result of a review. `output` is the attempt's, or the fixed one that passed a review of its own.

    `has_verdict` is False where a policy left a result without a review.
    """

    approved: bool = False
    output: str = ""
    reasons: tuple[str, ...] = ()
    has_verdict: bool = True


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Reviews attempts."""

    tracer: Tracer

    async def review(self, execution: TaskExecution, produced: AttemptOutput, attempt: int) -> ReviewResult:
        """Review one attempt and report the verdict. Raises ModelError where there is no verdict.

        An attempt that the agent's policy leaves without a review is approved unless a rule rejects it.
        """
        if not _is_due(execution, produced):
            rejected = _rejected_by_rule(execution, produced)
            return rejected or ReviewResult(approved=True, output=produced.output, has_verdict=False)
        name = f"{execution.card.name}_reflection"
        with self.tracer.span(name, SpanKind.EVALUATOR, lambda: {"input": produced.output}) as span:
            status, result = await self._review(execution, produced, (attempt - 1) * _POSITIONS_PER_REVIEW)
            span.set(
                lambda: {
                    "reflection_status": status,
                    "tags": [f"reflection_status:{status}"],
                    "output": {"status": status, "reasons": result.reasons},
                }
            )
            context, path = execution.context, execution.place("review")
            if context.journal.knows(path, "result", attempt):  # an earlier process reported it
                return result
            context.journal.record(path, "result", {"status": status}, attempt)
            self.tracer.score(VERDICT_SCORE, VERDICT_VALUES[status], " ".join(result.reasons))
            task_id, told = execution.task_id, list(result.reasons)
            context.recorder.emit(
                Reflection(
                    task_id=task_id,
                    attempt=attempt,
                    status=status,
                    reasons=told,
                    path=execution.path,
                    agent=execution.card.name,
                )
            )
            return result

    async def _review(
        self, execution: TaskExecution, produced: AttemptOutput, position: int
    ) -> tuple[Status, ReviewResult]:
        if rejected := _rejected_by_rule(execution, produced):
            return "REJECTED", rejected
        verdict = await self._verdict(execution, produced, position)
        if verdict.status != "FIXED":
            approved = verdict.status == "APPROVED"
            return verdict.status, ReviewResult(approved, produced.output, tuple(verdict.reasons))
        fixed = verdict.refined_output.strip()
        if not fixed:
            return "REJECTED", ReviewResult(reasons=("The output was called fixed, but no fix was given.",))
        second = await self._verdict(execution, replace(produced, output=fixed), position + 2)
        if second.status != "APPROVED":  # a fix counts only if a second verdict approves it
            return "REJECTED", ReviewResult(reasons=tuple(second.reasons))
        return "FIXED", ReviewResult(approved=True, output=fixed, reasons=tuple(verdict.reasons))

    async def _verdict(self, execution: TaskExecution, produced: AttemptOutput, position: int) -> Verdict:
        reviewer, allowance = execution.card.reviewer, execution.context.allowance
        prompt = execution.context.prompts["reflection"]
        output, tool_calls = await _reviewed_texts(execution, produced)
        messages = prompt.fill(
            user_request=execution.dispatch["input_request"],
            task_id=execution.task_id,
            agent=execution.card.name,
            task=execution.task,
            tool_calls=tool_calls,
            output=output,
        )
        if reviewer:  # its own instruction is below the system text
            system, user = messages
            own, _ = execution.context.prompts["reviewer"].fill(name=reviewer.id, behaviour=instruction(reviewer))
            messages = (Message("system", f"{system.content}\n\n{own.content}"), user)
        request = ModelRequest(
            role=allowance.role(ModelRole.REASONING),
            messages=messages,
            response=VERDICT,
            max_tokens=allowance.max_tokens,
            prompt=prompt.used,
            model=reviewer.llm_model if reviewer and ModelRole.REASONING in allowance.roles else None,
        )
        return await ask_for_document(execution.context.model, execution.place("review"), position, request, Verdict)


@dataclass(frozen=True, slots=True)
class ReviewPolicies:
    """The policies that hold for the results of one agent, each None where nobody set it.

    `demanded` if the agent's maker asks for a review of each result, whatever the policy of a tool is.
    """

    governance: ReviewPolicy | None = None
    agent: ReviewPolicy | None = None
    caller: ReviewPolicy | None = None
    demanded: bool = False

    @classmethod
    def of_task(cls, execution: TaskExecution) -> "ReviewPolicies":
        """Return the policies for the task of an agent."""
        card, context = execution.card, execution.context
        config = card.config
        demanded = config is not None and (config.enable_self_reflection or config.reflection_agent_id is not None)
        return cls(context.allowance.review, card.reflect, context.run.config.reflect, demanded)

    def policy(self, tool: ReviewPolicy | None = None) -> ReviewPolicy:
        """Return the policy for a result of a tool that has this policy of its own, or of no tool.

        A tool's policy comes before its agent's, and that before the one of governance, which is also the least that
        holds. Where none is set, the caller's replaces the default, `always`; else it can only be stricter.
        """
        own: ReviewPolicy | None = "always" if self.demanded else tool or self.agent
        chosen: ReviewPolicy = own or self.governance or self.caller or "always"
        return reduce(stricter_review, (policy for policy in (self.governance, self.caller) if policy), chosen)


def _is_due(execution: TaskExecution, produced: AttemptOutput) -> bool:
    """Whether a policy has an attempt reviewed: that for each of its calls' tools, without calls that for the agent.

    `risky` are tasks with calls that may change something. The ledger knows those calls, also once the run is resumed
    without the servers that they were made of.
    """
    if execution.context.run.call:  # its caller judges the result
        return False
    if execution.card.is_architect:  # the proof of its team is the review
        return False
    own: Mapping[str, ReviewPolicy | None] = {tool.full_name: tool.reflect for tool in execution.card.tools}
    of_task = ReviewPolicies.of_task(execution)
    policies = {of_task.policy(own.get(use.name)) for use in produced.uses} or {of_task.policy()}
    if "risky" not in policies or "always" in policies:
        return "always" in policies
    if produced.earlier or execution.done:
        return True
    return execution.context.ledger.has_calls(execution.path) or has_simulated_effects(execution)


def _rejected_by_rule(execution: TaskExecution, produced: AttemptOutput) -> ReviewResult | None:
    """Return the rejection of an output that is empty or comes from failed calls only; a search may find nothing."""
    of_results = produced.uses and produced.output == joined_results(produced.uses)  # not in the agent's own words
    is_empty = not (any(use.outcome.text.strip() for use in produced.uses) if of_results else produced.output.strip())
    if is_empty and any(use.outcome.status == "succeeded" for use in produced.uses):
        # earlier versions rejected that, too, and began another attempt
        is_empty = execution.context.journal.knows(execution.path, "context", execution.attempt.number)
    if is_empty:
        return ReviewResult(reasons=("The output is empty.",))
    kept = any(use.outcome.code == REPEAT_REFUSED for use in produced.uses)  # what was done before is the result
    if produced.uses and not kept and all(use.outcome.status == "failed" for use in produced.uses):
        return ReviewResult(reasons=tuple(f"{use.name} failed: {use.outcome.text}" for use in produced.uses))
    return None


async def _reviewed_texts(execution: TaskExecution, produced: AttemptOutput) -> tuple[str, Xml]:
    """Return the output and the calls behind it as the reviewer is shown them, within one budget."""
    earlier = _earlier_calls(execution, produced)
    members = [_done_call(one.outcome["agent"], {"task": one.task}, one.outcome["output"]) for one in produced.inner]
    notes = [note for note in execution.notes if not note.repeated]  # later tasks are given what they say
    calls = [*earlier, *produced.uses, *notes, *members]
    results = [produced.output, *(use.outcome.text for use in calls)]
    output, *texts = await shown(results, REVIEWER, execution.wanted)
    elements = [_call_element(use, text) for use, text in zip(calls, texts, strict=True)]
    before, own = elements[: len(earlier)], elements[len(earlier) :]
    return output, lines([*([element("earlier_attempt", Xml("".join(before)))] if before else []), *own])


def _call_element(use: FinishedCall, text: str) -> Xml:
    """Return a call with its result as it is shown, and an attribute where that was cut before."""
    arguments = element("arguments", json.dumps(dict(use.arguments), ensure_ascii=False, sort_keys=True))
    content = Xml(arguments + element("result", text))
    note = {"shown": f"parts of {use.outcome.characters:,} characters"} if use.outcome.artifact else {}
    return element("call", content, name=use.name, status=use.outcome.status, **note)


def _earlier_calls(execution: TaskExecution, produced: AttemptOutput) -> list[FinishedCall]:
    """Return the last 20 calls of earlier attempts that an output is about, and that changed something in them.

    A call that this attempt made, or was given the result of, is shown there.
    """
    known = {(use.name, canonical(use.arguments)) for use in (*produced.earlier, *produced.uses)}
    others = (done for done in execution.done if (done.name, canonical(done.arguments)) not in known)
    calls = [_done_call(done.name, done.arguments, done.result) for done in others]
    return [*produced.earlier, *calls][-_MOST_EARLIER:]


def _done_call(name: str, arguments: JsonObject, result: str) -> FinishedCall:
    """Return as a call what was done before, or what a member of a team was asked and answered."""
    return FinishedCall(name, arguments, ToolOutcome(Observation.COMPLETED, result))
