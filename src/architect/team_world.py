"""What a team can be made of: the servers, teams and agents of a tenant, as pure data."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from starling.core.agents import like_a_specialist
from starling.core.json import JsonObject
from starling.core.model_output.names import plain_name
from starling.core.principal import Grant
from starling.core.teams.spec import TeamSpec
from starling.core.teams.stars import StarLimits, StarSpec
from starling.core.tool_calls import Effect

RESERVED: Final = frozenset({"architect", "supervisor", "qa"})
"""Names that no team and no member may have, beside those of builtins and of specialists."""

NO_LIMITS: Final = StarLimits()


@dataclass(frozen=True, slots=True)
class TeamWorld:
    """The registry as one caller of one tenant sees it.

    `servers` has the effect of each tool by the server's and the tool's own name (`servers["git"]["git_log"]`): the
    servers of the active epoch that the tenant sees. `teams` has the stars of the tenant's active teams, `inactive` the
    state of each other one's newest version. `agents` has the names of its custom agents, `builtins` those of built-in
    agents. `grant` is what the caller may call (None: everything); findings name nothing beyond it. `limits` are those
    of the caller's runs.
    """

    servers: Mapping[str, Mapping[str, Effect]]
    teams: Mapping[str, StarSpec] = field(default_factory=dict[str, StarSpec])
    agents: Collection[str] = ()
    builtins: Collection[str] = ()
    grant: Grant | None = None
    limits: StarLimits = NO_LIMITS
    inactive: Mapping[str, str] = field(default_factory=dict[str, str])

    def part(self, team: TeamSpec) -> JsonObject:
        """Return everything in it that the checks of a team's structure and its star depend on, as JSON."""
        stars = {name: self.teams[name] for name in sorted(_team_names(team)) if name in self.teams}
        servers = {tool.partition(".")[0] for star in stars.values() for tool in star.tools} | _server_names(team)
        alike = plain_name(team.name)
        names = {"teams": self.teams, "agents": self.agents, "builtins": self.builtins}
        return {
            "servers": {name: sorted(self.servers[name]) for name in sorted(servers) if name in self.servers},
            "stars": {name: star.hash for name, star in stars.items()},
            "names": {kind: sorted(one for one in of if plain_name(one) == alike) for kind, of in names.items()},
            "grant": self.grant and self.grant.as_json(),
        }

    def tools(self, server: str) -> list[str]:
        """Return the full names of a server's tools, sorted; none for an unknown server."""
        return sorted(f"{server}.{tool}" for tool in self.servers.get(server, ()))

    def has(self, tool: str) -> bool:
        """Return whether there is a tool of this full name."""
        server, _, name = tool.partition(".")
        return name in self.servers.get(server, ())

    def reaches(self, server: str) -> bool:
        """Return whether the caller may call a tool of a server, whether or not it exists."""
        return self.grant is None or self.grant.reaches(server)

    def permits(self, tool: str) -> bool:
        """Return whether the caller may call a tool, whether or not it exists."""
        return permits(self.grant, tool)

    def visible_servers(self) -> list[str]:
        """Return the servers that a finding may name to the caller."""
        return sorted(filter(self.reaches, self.servers))

    def visible_tools(self, server: str) -> list[str]:
        """Return the full names of a server's tools that a finding may name to the caller."""
        return list(filter(self.permits, self.tools(server)))


def permits(grant: Grant | None, tool: str) -> bool:
    """Return whether a tool, given by its full name, may be called. Without a grant, everything may."""
    return grant is None or grant.permits(tool.partition(".")[0], tool)


def is_reserved(name: str) -> bool:
    """Return whether a name belongs to a part of every star, or to the specialists."""
    return name in RESERVED or like_a_specialist(name)


def nested(star: StarSpec) -> Iterator[StarSpec]:
    """Return the stars inside a star, at any depth."""
    for member in star.members:
        if member.team:
            yield member.team
            yield from nested(member.team)


def _team_names(team: TeamSpec) -> set[str]:
    return {member.team for member in team.members if member.team}


def _server_names(team: TeamSpec) -> set[str]:
    tools = [*team.grants.tools, *(tool for member in team.members for tool in member.tools)]
    own = [member.server for member in team.members if member.server]
    return {*own, *team.grants.servers, *(tool.partition(".")[0] for tool in tools)}
