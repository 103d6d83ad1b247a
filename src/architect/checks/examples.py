"""Rule: examples have ids of their own, and name criteria and tools that the team has."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, lacks, wanted_tools
from architect.wording import did_you_mean
from starling.core.teams.spec import Example, Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return examples with an id that is used twice, and the criteria and tools in them that the team hasn't.

    Tools that the caller may not call are left to the rule of its grant, whether or not they exist.
    """
    tools = {tool for member in team.members for tool in wanted_tools(team, member, world)}
    visible = sorted(filter(world.permits, tools))
    known, seen = [criterion.id for criterion in team.criteria], set[str]()
    for number, example in enumerate(team.examples):
        path = f"examples[{number}]"
        if example.id in seen:
            yield Finding(f"{path}.id", "examples", f"The id {example.id!r} is used twice.", "Give each its own id.")
        seen.add(example.id)
        for index, criterion in enumerate(example.criteria):
            place = f"{path}.criteria[{index}]"
            if criterion not in known:
                remedy = did_you_mean(criterion, known, "Add it to `criteria`, or remove it here.")
                yield Finding(place, "examples", f"There is no criterion {criterion!r}.", remedy)
            elif criterion in example.criteria[:index]:
                yield Finding(place, "examples", f"The criterion {criterion!r} is named twice.", "Remove one of them.")
        for place, tool in named_tools(example):
            if lacks(team, tools, tool, world):
                remedy = did_you_mean(tool, visible, "Give the tool to a member, or remove it here.")
                yield Finding(f"{path}.{place}", "examples", f"No member has the tool {tool!r}.", remedy)
        for index, tool in enumerate(example.must_not_call):
            if tool in example.must_call:
                reason = f"{tool!r} must be called and must not be called."
                yield Finding(f"{path}.must_not_call[{index}]", "examples", reason, "Remove it from one of the two.")


def case_tools(team: TeamSpec) -> Iterator[tuple[str, str]]:
    """Return the tools that criteria and examples name, each with its place in the spec."""
    for number, criterion in enumerate(team.criteria):
        if criterion.kind == "tool_called" and criterion.value is not None:
            yield f"criteria[{number}].value", criterion.value
    for number, example in enumerate(team.examples):
        for place, tool in named_tools(example):
            yield f"examples[{number}].{place}", tool


def named_tools(example: Example) -> Iterator[tuple[str, str]]:
    """Return the tools that an example names, each with its place in the example."""
    for index, fixture in enumerate(example.fixtures):
        yield f"fixtures[{index}].tool", fixture.tool
    for index, tool in enumerate(example.must_call):
        yield f"must_call[{index}]", tool
    for index, tool in enumerate(example.must_not_call):
        yield f"must_not_call[{index}]", tool
