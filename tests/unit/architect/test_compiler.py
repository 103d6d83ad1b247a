"""Team specs become star specs with the tools that everybody involved grants."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from architect.checks import checked
from architect.compiler import compile_team
from architect.team_world import TeamWorld
from starling.core.principal import Grant
from starling.core.teams.spec import TeamInvalidError, TeamSpec
from starling.core.teams.stars import StarLimits, StarSpec
from starling.core.tool_calls import Effect
from tests.support.team_specs import PAIR, SERVERS, TRIPLE, WORLD, grant, member, spec_document, team_spec

TOOLS = [f"{server}.{tool}" for server, tools in SERVERS.items() for tool in tools]


def star_of(team: TeamSpec, creator: Grant | None = None, activator: Grant | None = None) -> StarSpec:
    return compile_team(team, WORLD, creator=creator, activator=activator)


def refusals(team: TeamSpec, creator: Grant | None = None, activator: Grant | None = None) -> list[tuple[str, str]]:
    with pytest.raises(TeamInvalidError) as caught:
        star_of(team, creator, activator)
    return [(finding.rule, finding.path) for finding in caught.value.findings]


@pytest.mark.parametrize(
    ("fields", "grants", "creator", "activator", "tools"),
    [
        pytest.param({}, {}, None, None, ("git.git_commit", "git.git_log"), id="all-of-the-server"),
        pytest.param({"tools": ["git.git_log", "git.git_log"]}, {}, None, None, ("git.git_log",), id="those-named"),
        pytest.param({}, {"tools": ["git.git_log"]}, None, None, ("git.git_log",), id="those-of-the-spec"),
        pytest.param({}, {}, grant("git.git_log"), grant("git"), ("git.git_log",), id="those-of-the-creator"),
        pytest.param({}, {}, grant("git"), grant("git.git_log"), ("git.git_log",), id="those-of-the-activator"),
        pytest.param(
            {"tools": ["git.git_log", "git.git_commit"]},
            {"servers": ["git"]},
            grant("git.git_log"),
            None,
            ("git.git_log",),
            id="those-named-and-granted",
        ),
    ],
)
def test_member_gets_the_tools_that_spec_creator_and_activator_grant(
    fields: dict[str, Any],
    grants: dict[str, Any],
    creator: Grant | None,
    activator: Grant | None,
    tools: tuple[str, ...],
) -> None:
    star = star_of(team_spec(member(server="git", **fields), grants=grants), creator, activator)

    assert star.members[0].tools == tools


@pytest.mark.parametrize(
    ("team", "creator", "activator", "refused"),
    [
        pytest.param(
            team_spec(member(server="git", tools=["git.git_commit"])),
            grant("git.git_log"),
            grant("git"),
            [("member_without_tools", "members[0].server")],
            id="no-tool-of-the-creator",
        ),
        pytest.param(
            team_spec(member(server="git")),
            grant("git.git_log"),
            grant("git.git_commit"),
            [("member_without_tools", "members[0].server")],
            id="no-tool-in-common",
        ),
        pytest.param(
            team_spec(member(team="payers")),
            None,
            grant("git"),
            [("member_without_tools", "members[0].team")],
            id="inner-team",
        ),
        pytest.param(
            team_spec(member(server="absent")), None, None, [("unknown_server", "members[0].server")], id="rule-broken"
        ),
    ],
)
def test_team_with_a_member_that_no_tool_is_left_for_is_refused(
    team: TeamSpec, creator: Grant | None, activator: Grant | None, refused: list[tuple[str, str]]
) -> None:
    assert refusals(team, creator, activator) == refused


def test_server_that_the_caller_may_not_know_of_is_refused_although_no_rule_names_it() -> None:
    world = replace(WORLD, grant=grant("git"))

    with pytest.raises(TeamInvalidError) as caught:
        compile_team(team_spec(member(server="absent")), world, creator=None, activator=grant("git"))

    assert [finding.rule for finding in caught.value.findings] == ["member_without_tools"]


def test_everything_that_a_spec_says_of_the_team_and_of_a_member_is_in_its_star() -> None:
    fields: dict[str, Any] = {
        "backstory": "Reads {secret.__class__} as it is.",
        "runtime": "native",
        "model_role": "coding",
        "reflect": "risky",
        "approval": "effects",
    }
    limits = {"seconds": 60, "iterations": 5, "tokens": 9_000}
    team = team_spec(member(server="time", **fields), instructions="Be brief.", limits=limits)

    star = star_of(team)
    (made,) = star.members

    assert (star.name, star.purpose, star.instructions) == ("news", "Tells what is new.", "Be brief.")
    assert star.limits == StarLimits(seconds=60, iterations=5, tokens=9_000)
    assert (made.name, made.server, made.runtime, made.role) == ("historian", "time", "native", "coding")
    assert (made.reflect, made.approval) == ("risky", "effects")
    assert made.persona.model_dump() == {
        "role": "historian",
        "goal": "Tells what changed.",
        "backstory": "Reads {secret.__class__} as it is.",
    }


def test_inner_team_is_part_of_the_star_as_it_is_now() -> None:
    star = star_of(team_spec(member(team="pair"), member("writer")))

    assert star.members[0].team == PAIR
    assert star.depth == 3
    assert star.tools == ("git.git_commit", "git.git_log")


def test_inner_team_loses_the_tools_that_the_maker_of_the_outer_one_may_not_call() -> None:
    star = star_of(team_spec(member(team="pair")), creator=grant("git.git_log", "payroll"))

    assert star.tools == ("git.git_log",)
    assert star.hash != star_of(team_spec(member(team="pair"))).hash


def test_tools_that_a_server_gets_later_do_not_become_part_of_a_star() -> None:
    team = team_spec(member(server="git"))
    before = star_of(team)
    grown = replace(WORLD, servers={**SERVERS, "git": {**SERVERS["git"], "git_push": Effect.UNSAFE}})

    after = compile_team(team, grown, creator=None, activator=None)

    assert "git.git_push" not in before.tools
    assert "git.git_push" in after.tools


def shuffled(value: object, order: random.Random) -> Any:
    """Return a JSON value with the keys of its objects in another order."""
    if isinstance(value, dict):
        items: list[tuple[str, object]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
        order.shuffle(items)
        return {key: shuffled(item, order) for key, item in items}
    return value


def grants() -> st.SearchStrategy[Grant | None]:
    names = st.sets(st.sampled_from([*SERVERS, *TOOLS]), min_size=2)
    return st.none() | names.map(lambda chosen: grant(*chosen))


def members() -> st.SearchStrategy[list[dict[str, Any]]]:
    def of_server(server: str) -> st.SearchStrategy[dict[str, Any]]:
        tools = [f"{server}.{tool}" for tool in SERVERS[server]]
        named = st.lists(st.sampled_from(tools), max_size=2)
        return named.map(lambda chosen: {"server": server, "tools": chosen})

    inner = st.sampled_from(["git_team", "pair", "payers"]).map(lambda name: {"team": name})
    one = st.sampled_from(["files", "git", "time"]).flatmap(of_server) | inner | st.just(dict[str, Any]())
    several = st.lists(one, min_size=1, max_size=3)
    return several.map(lambda found: [member(f"m{number}", **fields) for number, fields in enumerate(found)])


def pairs(star: StarSpec) -> Iterator[tuple[str | None, str]]:
    for made in star.members:
        yield from ((made.server, tool) for tool in made.tools)
        if made.team:
            yield from pairs(made.team)


@given(members(), grants(), grants(), grants())
def test_star_has_no_tool_beyond_any_grant_nor_of_another_server(
    made: list[dict[str, Any]], of_spec: Grant | None, creator: Grant | None, activator: Grant | None
) -> None:
    team = team_spec(*made, grants=of_spec.as_json() if of_spec else {})
    allowed = [one for one in (team.grants.grant, creator, activator) if one is not None]
    try:
        star = star_of(team, creator, activator)
    except TeamInvalidError:
        return

    assert all(one.permits(tool.partition(".")[0], tool) for tool in star.tools for one in allowed)
    assert all(tool.startswith(f"{server}.") for server, tool in pairs(star))
    assert all(made.tools or made.team or not made.server for made in star.members)


def odd_members() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return members with any servers, tools and teams, known or not, in any combination."""
    fields = {
        "server": st.none() | st.sampled_from([*SERVERS, "absent"]),
        "team": st.none() | st.sampled_from([*WORLD.teams, "news", "absent"]),
        "tools": st.lists(st.sampled_from([*TOOLS, "git.absent", "absent.tool"]), max_size=2),
    }
    names = st.sampled_from(["a", "b", "c", "qa", "news"])
    return st.lists(st.builds(member, names, **fields), min_size=1, max_size=3)


@given(odd_members(), grants(), grants())
def test_spec_without_findings_compiles_for_its_caller_and_one_with_findings_never_gets_more(
    made: list[dict[str, Any]], of_spec: Grant | None, caller: Grant | None
) -> None:
    team = team_spec(*made, grants=of_spec.as_json() if of_spec else {})
    world = replace(WORLD, grant=caller)
    findings = checked(team, world)
    try:
        star = compile_team(team, world, creator=caller, activator=caller)
    except TeamInvalidError:
        assert findings
        return

    assert {finding.rule for finding in findings} <= {"caller_grant"}
    assert caller is None or all(caller.permits(tool.partition(".")[0], tool) for tool in star.tools)


@given(members(), grants(), st.randoms(use_true_random=False))
def test_star_is_the_same_whatever_the_order_of_keys_servers_and_grants(
    made: list[dict[str, Any]], creator: Grant | None, order: random.Random
) -> None:
    document = spec_document(*made, limits={"seconds": 9, "tokens": 10, "iterations": 2})
    other = shuffled(document, order) | {"members": [shuffled(one, order) for one in made]}
    world = TeamWorld(shuffled(SERVERS, order), shuffled(WORLD.teams, order), WORLD.agents, [*WORLD.builtins][::-1])
    first, second = TeamSpec.model_validate(document), TeamSpec.model_validate(other)
    try:
        star = star_of(first, creator)
    except TeamInvalidError:
        return

    assert first.hash == second.hash
    assert compile_team(second, world, creator=creator, activator=None).hash == star.hash


@pytest.mark.parametrize(
    ("team", "world", "rule"),
    [
        pytest.param(team_spec(member()), replace(WORLD, agents=["news"]), "taken_name", id="agent-of-the-name"),
        pytest.param(team_spec(member()), replace(WORLD, builtins=["news"]), "reserved_name", id="builtin-of-the-name"),
        pytest.param(
            team_spec(member()), replace(WORLD, teams={"new_s": PAIR}), "taken_name", id="team-of-a-like-name"
        ),
        pytest.param(
            team_spec(member(team="pair")), replace(WORLD, teams={}), "unknown_team", id="inner-team-archived"
        ),
        pytest.param(
            team_spec(member(team="pair")),
            replace(WORLD, teams={"pair": TRIPLE}),
            "depth",
            id="inner-team-replaced",
        ),
        pytest.param(
            team_spec(member(team="pair")), replace(WORLD, servers={}), "broken_team", id="server-of-inner-team-removed"
        ),
        pytest.param(
            team_spec(member(), grants={"servers": ["git"]}),
            replace(WORLD, servers={}),
            "unknown_server",
            id="granted-server-removed",
        ),
        pytest.param(
            team_spec(member(), grants={"tools": ["git.git_log"]}),
            replace(WORLD, servers={"git": {}}),
            "unknown_tool",
            id="granted-tool-removed",
        ),
    ],
)
def test_team_is_not_compiled_once_the_world_breaks_a_rule(team: TeamSpec, world: TeamWorld, rule: str) -> None:
    with pytest.raises(TeamInvalidError) as caught:
        compile_team(team, world, creator=None, activator=None)

    assert caught.value.findings[0].rule == rule
