"""Rule: the tools that are named exist."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from architect.wording import did_you_mean
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the tools of members and grants that don't exist, as far as the caller's grant allows it to know.

    Tools of an unknown server of a member have no finding of their own.
    """
    for number, member in enumerate(team.members):
        for index, tool in enumerate(member.tools):
            own = member.server is None or tool.startswith(f"{member.server}.")
            if own and tool.partition(".")[0] in world.servers:
                yield from unknown(f"members[{number}].tools[{index}]", tool, world)
    for index, tool in enumerate(team.grants.tools):
        yield from unknown(f"grants.tools[{index}]", tool, world)


def unknown(path: str, tool: str, world: TeamWorld) -> Iterator[Finding]:
    """Return a finding for a tool that doesn't exist, unless the caller may not know of it."""
    if world.has(tool) or not world.permits(tool):
        return
    server, _, name = tool.partition(".")
    names = [full.partition(".")[2] for full in world.visible_tools(server)]
    otherwise = f"`starling server list` shows the servers, and `starling server show {server}` its tools."
    remedy = did_you_mean(name, names, otherwise, f"{server}.")
    yield Finding(path, "unknown_tool", f"There is no tool {tool!r}.", remedy)
