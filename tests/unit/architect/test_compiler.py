"""Team specs become star specs with the tools that everybody involved grants."""

from typing import Any

import pytest

from architect.compiler import compile_team
from architect.team_world import TeamWorld
from starling.core.principal import Grant
from starling.core.stars import StarSpec
from starling.core.teams import TeamInvalidError, TeamSpec
from starling.core.tool_calls import Effect

SERVERS = {
    "git": {"git_log": Effect.READ, "git_commit": Effect.UNSAFE},
    "time": {"get_current_time": Effect.READ},
}
WORLD = TeamWorld(SERVERS)


def member(name: str = "historian", **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": "historian", "goal": "Tells what changed.", **fields}


def spec(*members: dict[str, Any], **fields: Any) -> TeamSpec:
    return TeamSpec.model_validate({"name": "news", "purpose": "Tells the news.", "members": members, **fields})


def star_of(team: TeamSpec, creator: Grant | None = None, activator: Grant | None = None) -> StarSpec:
    return compile_team(team, WORLD, creator=creator, activator=activator)


LOG = Grant(tools=frozenset({"git.git_log"}))
GIT = Grant(frozenset({"git"}))


@pytest.mark.parametrize(
    ("fields", "creator", "activator", "tools"),
    [
        pytest.param({}, None, None, ("git.git_commit", "git.git_log"), id="all-of-the-server"),
        pytest.param({"tools": ["git.git_log"]}, None, None, ("git.git_log",), id="those-named"),
        pytest.param({}, LOG, GIT, ("git.git_log",), id="those-of-the-creator"),
        pytest.param({}, GIT, LOG, ("git.git_log",), id="those-of-the-activator"),
        pytest.param({"tools": ["git.git_log", "git.git_commit"]}, LOG, None, ("git.git_log",), id="named-and-granted"),
    ],
)
def test_member_gets_the_tools_that_spec_creator_and_activator_grant(
    fields: dict[str, Any], creator: Grant | None, activator: Grant | None, tools: tuple[str, ...]
) -> None:
    star = star_of(spec(member(server="git", **fields)), creator, activator)

    assert star.members[0].tools == tools


def test_member_that_no_tool_is_left_for_is_refused() -> None:
    with pytest.raises(TeamInvalidError) as caught:
        star_of(spec(member(server="git", tools=["git.git_commit"])), LOG, GIT)

    assert [(finding.path, finding.rule) for finding in caught.value.findings] == [
        ("members[0].server", "member_without_tools")
    ]
