"""Names that people take for others: which are refused, and which are not."""

from dataclasses import replace

import pytest

from architect.checks import checked
from tests.support.team_specs import WORLD, grant, member, star, team_spec

HISTORIAN = member(server="git")
ALIKE = replace(WORLD, agents=("modern", "wiki", "status_5"), builtins=("generalist", "coder"))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        pytest.param("c0der", "coder", id="zero-for-o-in-a-builtin"),
        pytest.param("genera1ist", "generalist", id="one-for-l"),
        pytest.param("generallst", "generalist", id="l-for-i"),
        pytest.param("5upervi5or", "supervisor", id="five-for-s-in-a-reserved-name"),
        pytest.param("arch1tect", "architect", id="builder-of-teams"),
        pytest.param("super-visor0", "", id="another-character"),
        pytest.param("super_vis0r", "supervisor", id="with-separators"),
        pytest.param("modem", "modern", id="m-for-rn-in-an-agent"),
        pytest.param("vviki", "wiki", id="vv-for-w"),
        pytest.param("status_s", "status_5", id="s-for-five"),
        pytest.param("g1t_team", "git_team", id="team"),
        pytest.param("rncp_agent_files", "mcp_agent_…", id="specialist"),
        pytest.param("mcpagentfiles", "mcp_agent_…", id="specialist-without-separators"),
        pytest.param("coder2", "", id="name-with-a-number"),
        pytest.param("decoder", "", id="name-with-another-inside"),
    ],
)
def test_name_of_a_team_that_looks_like_another_is_found(name: str, other: str) -> None:
    found = [
        (finding.rule, finding.path, finding.reason) for finding in checked(team_spec(HISTORIAN, name=name), ALIKE)
    ]

    assert found == ([("look_alike_name", "name", f"The name {name!r} looks like {other!r}.")] if other else [])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("c1ocks", "looks like 'clocks', the name of a team that is not active", id="archived-team"),
        pytest.param("clo-cks", "looks like 'clocks', the name of a team that is not active", id="only-separators"),
        pytest.param("t1me", "looks like 'time', the name of a server", id="server"),
        pytest.param("time", "belongs to a server", id="name-of-a-server"),
        pytest.param("payro11", "can't be used", id="server-that-the-caller-may-not-call"),
        pytest.param("clocks", "", id="archived-team-itself"),
        pytest.param("cl0ck", "", id="another-name"),
        pytest.param("annalist", "can't be used", id="archived-agent"),
        pytest.param("anna1ist", "can't be used", id="like-an-archived-agent"),
    ],
)
def test_new_name_is_compared_with_servers_and_with_teams_that_are_not_active(name: str, says: str) -> None:
    world = replace(ALIKE, inactive={"clocks": "archived"}, archived_agents={"annalist"}, grant=grant("git", "time"))

    found = [str(finding) for finding in checked(team_spec(HISTORIAN, name=name), world)]

    assert found == ([f"name: The name {name!r} {says}. Choose another name."] if says else [])


@pytest.mark.parametrize("name", ["time", "t1me", "annalist"])
def test_names_that_teams_had_before_are_not_compared_with_servers_and_archived_agents(name: str) -> None:
    world = replace(WORLD, archived_agents={"annalist"})
    stored, active = replace(world, inactive={name: "draft"}), replace(world, teams={name: star(name, HISTORIAN)})

    assert [checked(team_spec(HISTORIAN, name=name), world) for world in (stored, active)] == [[], []]


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        pytest.param("supervis0r", ["look_alike_name"], id="like-the-supervisor"),
        pytest.param("rncp_agent_git", ["look_alike_name"], id="like-a-specialist"),
        pytest.param("supervisor", ["reserved_name"], id="the-supervisor"),
        pytest.param("c0der", [], id="like-a-builtin-that-is-no-member"),
    ],
)
def test_name_of_a_member_that_looks_like_a_part_of_the_platform_is_found(name: str, rules: list[str]) -> None:
    assert [finding.rule for finding in checked(team_spec(member(name)), ALIKE)] == rules


def test_name_that_differs_only_in_separators_has_one_finding() -> None:
    findings = checked(team_spec(HISTORIAN, name="mod-ern"), ALIKE)

    assert [finding.rule for finding in findings] == ["taken_name"]


def test_names_of_an_active_team_that_was_accepted_before_stay_valid() -> None:
    odd = star("c0der", member("supervis0r"))
    world = replace(ALIKE, teams={"c0der": odd})

    kept = checked(team_spec(member("supervis0r"), name="c0der"), world)
    added = checked(team_spec(member("supervis0r"), member("5upervisor"), name="c0der"), world)

    assert kept == []
    assert ("look_alike_name", "members[1].name") in [(finding.rule, finding.path) for finding in added]
