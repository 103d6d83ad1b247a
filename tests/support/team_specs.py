"""Team specs, and a world for them."""

from typing import Any

from architect.compiler import compile_team
from architect.team_world import TeamWorld
from starling.core.principal import Grant
from starling.core.teams.spec import TeamSpec
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect

SERVERS = {
    "files": {"read_file": Effect.READ, "write_file": Effect.UNSAFE},
    "git": {"git_log": Effect.READ, "git_commit": Effect.UNSAFE},
    "payroll": {"pay": Effect.UNSAFE},
    "silent": dict[str, Effect](),
    "time": {"get_current_time": Effect.READ},
}


def member(name: str = "historian", **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": "historian", "goal": "Tells what changed.", **fields}


def spec_document(*members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "news", "purpose": "Tells what is new.", "members": [*members], **fields}


def team_spec(*members: dict[str, Any], **fields: Any) -> TeamSpec:
    return TeamSpec.model_validate(spec_document(*members, **fields))


def star(name: str, *members: dict[str, Any], **teams: StarSpec) -> StarSpec:
    """Return the star of a team among other `teams`."""
    world = TeamWorld(SERVERS, teams)
    return compile_team(team_spec(*members, name=name), world, creator=None, activator=None)


def grant(*names: str) -> Grant:
    """Return the grant of servers and of tools, which have a dot in their names."""
    return Grant(frozenset(name for name in names if "." not in name), frozenset(name for name in names if "." in name))


GIT = star("git_team", member(server="git"))
PAIR = star("pair", member(team="git_team"), git_team=GIT)
TRIPLE = star("triple", member(team="pair"), pair=PAIR)
PAYERS = star("payers", member(server="payroll"))
WORLD = TeamWorld(
    SERVERS,
    {one.name: one for one in (GIT, PAIR, TRIPLE, PAYERS)},
    agents=("release_notes",),
    builtins=("generalist", "coder"),
)
