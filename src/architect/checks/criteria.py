"""Rule: criteria have ids of their own, and what is needed to judge them."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, lacks, wanted_tools
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return criteria with an id that is used twice, without a value to look for, or of a tool that no member has.

    Tools that the caller may not call are left to the rule of its grant, whether or not they exist.
    """
    tools = {tool for member in team.members for tool in wanted_tools(team, member, world)}
    seen: set[str] = set()
    for number, criterion in enumerate(team.criteria):
        path = f"criteria[{number}]"
        if criterion.id in seen:
            yield Finding(f"{path}.id", "criteria", f"The id {criterion.id!r} is used twice.", "Give each its own id.")
        seen.add(criterion.id)
        value, kind, place = criterion.value, criterion.kind, f"{path}.value"
        if kind == "judged" and value is not None:
            remedy = "Remove `value`, or choose another `kind`."
            yield Finding(place, "criteria", "A `judged` criterion is judged by its text alone.", remedy)
        elif kind != "judged" and value is None:
            reason = f"A criterion of the kind `{kind}` needs a value."
            yield Finding(place, "criteria", reason, "Set `value`, or choose the kind `judged`.")
        elif kind == "tool_called" and value is not None and lacks(team, tools, value, world):
            reason = f"No member has the tool {value!r}."
            yield Finding(place, "criteria", reason, "Name a tool of a member by its full name, `server.tool`.")
