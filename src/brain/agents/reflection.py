"""The review of an attempt: what can be decided without a model is; the rest gets a verdict."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from brain.agents.prompt_building import instruction
from brain.agents.runtime import AttemptOutput, TaskExecution, ToolUse
from brain.planning.decision import VERDICT, Verdict
from brain.planning.structured_output import ask_for_document
from brain.prompts import Xml, element, lines, prompt
from starling.core.agents import LLMAgentConfig
from starling.core.events import Reflection
from starling.core.llm import Message, ModelRequest, ModelRole
from starling.core.tracing import Attributes, SpanKind

_RESULT_CHARS = 8_000
_OUTPUT_CHARS = 12_000
_SCORES: Final = {"APPROVED": 1.0, "FIXED": 0.5, "REJECTED": 0.0}
_POSITIONS_A_REVIEW = 4  # a verdict and its repair, and the same again for a fixed output

type Status = Literal["APPROVED", "FIXED", "REJECTED"]


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """A verdict that counts. `output` is what goes on: as produced, or as fixed and checked again."""

    approved: bool
    output: str
    reasons: tuple[str, ...]


async def reflect(work: TaskExecution, produced: AttemptOutput, attempt: int) -> ReviewResult:
    """Judge one attempt and tell the stream. Raises ModelError where no verdict can be had."""
    with work.context.tracer.span("reflection", SpanKind.EVALUATOR, lambda: {"input": produced.output}) as span:
        status, judgement = await _reflected(work, produced, attempt)
        span.set(lambda: _attributes(status, judgement))
        _tell(work, attempt, status, judgement.reasons)
        return judgement


async def _reflected(work: TaskExecution, produced: AttemptOutput, attempt: int) -> tuple[Status, ReviewResult]:
    certain = _without_a_model(produced)
    if certain is not None:
        return "REJECTED", certain
    position = (attempt - 1) * _POSITIONS_A_REVIEW
    verdict = await _verdict(work, produced, position)
    judgement = _judged(verdict, produced)
    if verdict.status == "FIXED":
        judgement = await _checked_again(work, produced, verdict, position + 2)
    return verdict.status if judgement.approved else "REJECTED", judgement


def _without_a_model(produced: AttemptOutput) -> ReviewResult | None:
    silent = produced.uses and not any(use.outcome.text.strip() for use in produced.uses)
    if silent or not produced.output.strip():
        return ReviewResult(approved=False, output="", reasons=("The output is empty.",))
    if produced.uses and all(use.outcome.status == "failed" for use in produced.uses):
        reasons = tuple(f"{use.name} failed: {use.outcome.text}" for use in produced.uses)
        return ReviewResult(approved=False, output="", reasons=reasons)
    return None


def _judged(verdict: Verdict, produced: AttemptOutput) -> ReviewResult:
    return ReviewResult(verdict.status == "APPROVED", produced.output, tuple(verdict.reasons))


async def _checked_again(work: TaskExecution, produced: AttemptOutput, verdict: Verdict, position: int) -> ReviewResult:
    """A fix counts only if it is there and passes a review of its own."""
    fixed = verdict.refined_output.strip()
    if not fixed:
        return ReviewResult(approved=False, output="", reasons=("The output was called fixed, but no fix was given.",))
    second = await _verdict(work, AttemptOutput(fixed, produced.uses), position)
    approved = second.status == "APPROVED"
    return ReviewResult(approved, fixed if approved else "", tuple(verdict.reasons if approved else second.reasons))


async def _verdict(work: TaskExecution, produced: AttemptOutput, position: int) -> Verdict:
    reviewer = work.card.reviewer
    messages = prompt("reflection").fill(
        user_request=work.dispatch["input_request"],
        task_id=work.task_id,
        agent=work.card.name,
        task=work.task,
        tool_calls=_calls(produced.uses),
        output=produced.output[:_OUTPUT_CHARS],
    )
    allowance = work.context.allowance
    request = ModelRequest(
        role=allowance.role(ModelRole.REASONING),
        messages=_as_told(messages, reviewer) if reviewer else messages,
        response=VERDICT,
        max_tokens=allowance.max_tokens,
        prompt=prompt("reflection").used,
        model=reviewer.llm_model if reviewer else None,
    )
    return await ask_for_document(work.context, f"{work.path}/review", position, request, Verdict)


def _as_told(messages: tuple[Message, ...], reviewer: LLMAgentConfig) -> tuple[Message, ...]:
    """Return the messages with a custom agent's own instruction for reviews below ours."""
    ours, *rest = messages
    own, _ = prompt("reviewer").fill(name=reviewer.id, behaviour=instruction(reviewer))
    return (Message("system", f"{ours.content}\n\n{own.content}"), *rest)


def _calls(uses: Sequence[ToolUse]) -> Xml:
    return lines(element("call", _call(use), name=use.name, status=use.outcome.status, **_shown(use)) for use in uses)


def _shown(use: ToolUse) -> Mapping[str, str]:
    """Say of a result that was cut off that there is more of it: the note at its end may not be shown."""
    return {"shown": f"the beginning of {use.outcome.characters:,} characters"} if use.outcome.artifact else {}


def _call(use: ToolUse) -> Xml:
    arguments = element("arguments", json.dumps(dict(use.arguments), ensure_ascii=False))
    return Xml(arguments + element("result", use.outcome.text[:_RESULT_CHARS]))


def _attributes(status: Status, judgement: ReviewResult) -> Attributes:
    return {
        "reflection_status": status,
        "tags": [f"reflection_status:{status}"],
        "output": {"status": status, "reasons": judgement.reasons},
    }


def _tell(work: TaskExecution, attempt: int, status: Status, reasons: Sequence[str]) -> None:
    """Record that the verdict was told and tell it, once."""
    journal, path = work.context.journal, f"{work.path}/review"
    if journal.knows(path, "result", attempt):
        return
    journal.record(path, "result", {"status": status}, attempt)
    work.context.tracer.score("verdict", _SCORES[status], " ".join(reasons))
    work.context.emit(
        Reflection.model_validate(
            {"task_id": work.task_id, "attempt": attempt, "status": status, "reasons": list(reasons)}
        )
    )
