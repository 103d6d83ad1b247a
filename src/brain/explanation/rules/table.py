"""The order of the rules, and the causes that they name: what the run's answer lacks, the first one first."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from brain.explanation.history import History, Task
from brain.explanation.rules import (
    access,
    arguments,
    ignored_errors,
    models,
    people,
    plan_order,
    remaining,
    run_end,
    servers,
    skills,
    teams,
    verdicts,
    wrong_tool,
)
from brain.explanation.rules.incident import Incident, RunRule, TaskRule
from starling.core.task_paths import is_within

TASK_RULES: Final[Sequence[TaskRule]] = (
    people.effect_in_doubt,
    run_end.cut_off,
    people.missing_approval,
    people.lost_budget,
    access.revoked_grant,
    teams.failed_team_member,
    access.switched_off,
    models.unreadable_output,
    models.model_unavailable,
    servers.unreachable_server,
    remaining.unread_artifact,
    remaining.by_code,
    servers.failing_backend,
    plan_order.bad_plan_order,
    skills.stale_skill,
    access.changed_tool,
    access.unmet_tool,
    arguments.wrong_argument,
    wrong_tool.wrong_tool,
    arguments.misdirected,
    verdicts.rejected_right_result,
    remaining.tool_failed,
    remaining.unable_agent,
    verdicts.rejected_result,
    remaining.any_failure,
)
"""What may explain a failed task: decisions of people and of the registry before what an agent did."""

RUN_RULES: Final[Sequence[RunRule]] = (
    ignored_errors.ignored_tool_error,
    verdicts.approved_error,
    verdicts.contradictory_verdicts,
    skills.misleading_skills,
    plan_order.lacking_results,
    people.unapproved_calls,
    people.uncertain_calls,
    access.stopped_calls,
    run_end.planning,
    run_end.unserved_parts,
    run_end.nothing_planned,
)


_OF_WHOLE_RUN: Final = frozenset(
    {"effect_in_doubt", "expired_approval", "refused_approval", "lost_budget", "revoked_grant"}
)
"""Causes that come from outside of a team, so that its member is not to blame."""


def explain_task(history: History, task: Task) -> Incident:
    """Return why a failed task failed."""
    return next(found for rule in TASK_RULES if (found := rule(history, task)) is not None)


def causes(history: History) -> list[Incident]:
    """Return what went wrong and was not made up for, the root cause first.

    What ended the whole run from outside comes first, then what happened first. A task that failed and was approved in
    a later try is no cause, except for a plan in the wrong order: that is a fault of the plan whatever came of it.
    """
    ended = run_end.ended_from_outside(history)
    found = sorted(_incidents(history), key=lambda incident: incident.seq)
    if ended:
        found = [ended, *(incident for incident in found if incident.code != ended.code)]
    kept = _without_repetitions(found)
    return kept or list(run_end.any_end(history))


def _incidents(history: History) -> Iterator[Incident]:
    for task in (failed := history.failed_tasks()):
        if not any(is_within(task.place, other.place) for other in failed if other is not task):
            yield from _with_inner(history, task, failed)
    for rule in RUN_RULES:
        yield from rule(history)
    for task in history.tasks.values():
        failed_before = any(one.end and one.end.status == "failed" for one in task.tries[:-1])
        is_recovered = failed_before and task.status == "approved" and history.counts(task)
        if is_recovered and (found := plan_order.bad_plan_order(history, task)) is not None:
            yield found


def _with_inner(history: History, task: Task, failed: Sequence[Task]) -> Iterator[Incident]:
    """Yield why a task failed, then why tasks of its team did: what is inside follows, though it was first."""
    outer = explain_task(history, task)
    if task.star and outer.code not in _OF_WHOLE_RUN:
        outer = teams.missing_part(history, task)
        yield outer
        yield replace(explain_task(history, task), seq=outer.seq)
    else:
        yield outer
    for inner in failed:
        if inner is not task and is_within(inner.place, task.place):
            found = explain_task(history, inner)
            yield replace(found, seq=max(found.seq, outer.seq))


def _without_repetitions(found: Sequence[Incident]) -> list[Incident]:
    """Return each incident once: the first of each code and task."""
    first: dict[tuple[str, str | None, str], Incident] = {}
    for incident in found:
        key = incident.code, incident.task, "" if incident.task else incident.text
        first.setdefault(key, incident)
    return list(first.values())
