"""Rule: a spec names only what its caller may call itself."""

from collections.abc import Iterator

from architect.checks.examples import case_tools
from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec

_REMEDY = "Remove it, or send the spec with a key that is granted it."


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the servers and tools that the caller's key is not granted, whether or not they exist.

    A server counts as granted where at least one of its tools is: the team gets only those.
    """
    servers = [(f"members[{at}].server", one.server) for at, one in enumerate(team.members) if not one.tools]
    servers += [(f"grants.servers[{at}]", server) for at, server in enumerate(team.grants.servers)]
    for path, server in servers:
        if server and not world.reaches(server):
            yield Finding(path, "caller_grant", f"This key may not call the server {server!r}.", _REMEDY)
    tools = [
        (f"members[{at}].tools[{index}]", tool)
        for at, member in enumerate(team.members)
        for index, tool in enumerate(member.tools)
    ]
    tools += [(f"grants.tools[{at}]", tool) for at, tool in enumerate(team.grants.tools)]
    for path, tool in (*tools, *case_tools(team)):
        if not world.permits(tool):
            yield Finding(path, "caller_grant", f"This key may not call {tool!r}.", _REMEDY)
