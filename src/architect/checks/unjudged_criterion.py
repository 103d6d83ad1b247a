"""Rule: every criterion can be met, and is judged in a case."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, granted_tools
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the criteria that no example names, and those that nothing the team does could meet.

    These are an artifact where no member has tools to make one with, and the call of a tool that the same example
    forbids. Without any example, all cases are missing, and no criterion is reported for it.
    """
    named = {criterion for example in team.examples for criterion in example.criteria}
    has_tools = any(granted_tools(team, member, world, (world.grant,)) for member in team.members)
    for number, criterion in enumerate(team.criteria):
        if team.examples and criterion.id not in named:
            remedy = f"Add {criterion.id!r} to `criteria` of an example, or remove it."
            yield _finding(f"criteria[{number}]", f"No example names the criterion {criterion.id!r}.", remedy)
        if criterion.kind == "artifact" and not has_tools:
            reason = "No member has tools, so the team keeps no artifact."
            yield _finding(f"criteria[{number}].kind", reason, "Choose another `kind`, or give a member a server.")
    called = {criterion.id: criterion.value for criterion in team.criteria if criterion.kind == "tool_called"}
    for number, example in enumerate(team.examples):
        for index, name in enumerate(example.criteria):
            if (tool := called.get(name)) in example.must_not_call:
                reason = f"{name!r} demands a call of {tool!r}, which this example forbids."
                remedy = "Remove it here, or the tool from `must_not_call`."
                yield _finding(f"examples[{number}].criteria[{index}]", reason, remedy)


def _finding(path: str, reason: str, remedy: str) -> Finding:
    return Finding(path, "unjudged_criterion", reason, remedy)
