"""Rule: the servers that are named exist."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from architect.wording import did_you_mean
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the servers of members and grants that don't exist, as far as the caller's grant allows it to know."""
    named = [(f"members[{number}].server", member.server) for number, member in enumerate(team.members)]
    named += [(f"grants.servers[{number}]", server) for number, server in enumerate(team.grants.servers)]
    for path, server in named:
        if server is not None and server not in world.servers and world.reaches(server):
            remedy = did_you_mean(server, world.visible_servers(), "`starling server list` shows the servers.")
            yield Finding(path, "unknown_server", f"There is no server {server!r}.", remedy)
