"""What a run cost, in all and by agent, and what of its rows is no longer kept."""

from datetime import datetime
from typing import Any

from brain.explanation.history import History
from brain.explanation.rules.people import owner
from brain.explanation.sections import MOST
from brain.explanation.shape import AgentCost, Cost, Missing
from brain.explanation.texts import counted, duration


def cost(history: History, now: datetime) -> Cost:
    """Return what the run cost, in all and by agent."""
    run, by_agent = history.rows.run, _by_agent(history)
    usage = _usage(history)
    seconds = ((run.ended_at or now) - run.created_at).total_seconds()
    most = max(by_agent, key=lambda one: one.tokens, default=None)
    by = f" Most of the tokens were used by {most.agent}: {most.tokens:,}." if most and most.tokens else ""
    text = (
        f"{usage['tokens']:,} tokens in {counted(usage['model_calls'], 'model call')} and "
        f"{counted(usage['tool_calls'], 'tool call')}, in {duration(seconds)}.{by}"
    )
    return Cost.model_validate(
        {**usage, "text": text, "seconds": round(seconds, 3), "money": None, "by_agent": by_agent}
    )


def _usage(history: History) -> dict[str, Any]:
    """Return the usage in the result of the run, or what its steps tell so far."""
    names = ("tokens", "input_tokens", "output_tokens", "model_calls", "tool_calls")
    known = (history.rows.run.result or {}).get("usage")
    if known:
        return {name: int(known.get(name) or 0) for name in names} | {"estimated": bool(known.get("estimated"))}
    steps = [step for step in history.rows.steps if step.type == "llm_call"]
    sums = {
        name: sum(int(step.metadata.get(name) or 0) for step in steps) for name in ("input_tokens", "output_tokens")
    }
    made = sum(step.type == "tool_call" for step in history.rows.steps)
    return {**sums, "tokens": sum(sums.values()), "model_calls": len(steps), "tool_calls": made, "estimated": False}


def _by_agent(history: History) -> list[AgentCost]:
    totals: dict[str, list[float]] = {}
    for step in history.rows.steps:
        if step.type not in ("llm_call", "tool_call"):
            continue
        total = totals.setdefault(owner(history, step.path), [0, 0, 0, 0.0])
        if step.type == "llm_call":
            total[0] += int(step.metadata.get("input_tokens") or 0) + int(step.metadata.get("output_tokens") or 0)
            total[1] += 1
        else:
            total[2] += 1
            total[3] += float(step.metadata.get("duration_ms") or 0.0) / 1000
    found = [
        AgentCost(
            agent=name,
            tokens=int(tokens),
            model_calls=int(models),
            tool_calls=int(tools),
            tool_seconds=round(seconds, 3),
        )
        for name, (tokens, models, tools, seconds) in totals.items()
    ]
    return sorted(found, key=lambda one: -one.tokens)[:MOST]


def pruned(history: History) -> list[Missing]:
    """Return what is no longer kept, or was not read, and what can't be told without it."""
    rows, found = history.rows, list[Missing]()
    run = rows.run
    if run.trimmed:
        text = (
            f"Events 1 to {run.trimmed} were deleted by retention: plans, tasks, calls, verdicts and warnings can't be "
            "told any more. Causes are taken from the result of the run, which stays."
        )
        found.append(Missing(what="events", text=text))
    if run.trimmed and not rows.steps:
        text = "Steps were deleted by retention: what each agent cost can't be told any more."
        found.append(Missing(what="steps", text=text))
    if run.trimmed and not rows.answers and not rows.outcomes:
        text = "The journal was deleted by retention: what models answered and why calls failed can't be told any more."
        found.append(Missing(what="journal", text=text))
    if run.trimmed and not rows.interrupts:
        text = (
            "Answered questions, if there were any, were deleted by retention: what the run waited for can't be told."
        )
        found.append(Missing(what="interrupts", text=text))
    ends = [one.end for task in history.tasks.values() for one in task.tries if one.end]
    gone = sorted({name for end in ends for name in end.artifacts} - rows.artifacts)
    if gone or (run.trimmed and not rows.artifacts):
        which = f": {', '.join(gone[:5])}" if gone else ", if there were any"
        text = f"Results of tools that were too long for a model were deleted{which}. They can't be read as a whole."
        found.append(Missing(what="artifacts", text=text))
    if lost := sorted({name for end in ends for name in end.skills} - history.skills.keys()):
        names = ", ".join(lost[:5])
        text = f"Skills were deleted that tasks had in their prompts: {names}. Whether one misled can't be told."
        found.append(Missing(what="skills", text=text))
    return [*found, *(Missing(what="not_read", text=text) for text in rows.unread)]
