"""Design: goals in ordinary words become sound teams of the servers that fit, with requests that the rules can do."""

import pytest

from starling.core.teams.building import BuildConstraints
from starling.core.teams.spec import TeamSpec
from starling.core.tool_calls import MemberApproval
from tests.support.in_memory_build import is_sound
from tests.support.offline_build import designed

DEMO = ("time", "system_health", "git")


def members(spec: TeamSpec) -> dict[str, set[str]]:
    return {str(one.server): {tool.partition(".")[2] for tool in one.tools} for one in spec.members}


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        pytest.param(
            "Build me a team that watches this machine's health and tells the current time in a time zone",
            {"system_health": {"cpu", "load", "memory"}, "time": {"get_current_time", "convert_time"}},
            id="two servers",
        ),
        pytest.param(
            "A team that lists the last 3 commits of /srv/app and shows how full the disk is",
            {"git": {"git_log"}, "system_health": {"disk"}},
            id="requests with their values",
        ),
        pytest.param("I want a team for time zones", {"time": {"get_current_time", "convert_time"}}, id="one server"),
        pytest.param(
            "Show the load, then show the status of /srv/app. Also tell how much memory is available.",
            {"system_health": {"load", "memory"}, "git": {"git_status"}},
            id="one member for each server",
        ),
    ],
)
async def test_team_has_a_member_for_each_server_with_the_tools_that_fit(
    goal: str, expected: dict[str, set[str]]
) -> None:
    found, _ = await designed(goal, *DEMO)

    assert found.findings == ()
    assert found.spec
    assert members(found.spec) == expected
    assert found.spec.examples == ()


@pytest.mark.parametrize(
    ("goal", "tools", "approval"),
    [
        pytest.param('Write "hello" to /tmp/a.txt, then show the load', {"write_file"}, "effects", id="ordered"),
        pytest.param("Read text files and show the load", {"read_text_file"}, "policy", id="not ordered"),
    ],
)
async def test_tools_with_effects_are_used_only_where_the_goal_orders_one(
    goal: str, tools: set[str], approval: MemberApproval
) -> None:
    found, _ = await designed(goal, "filesystem", "system_health", "git")

    assert found.spec
    files = found.spec.members[0]
    assert (files.server, files.approval) == ("filesystem", approval)
    assert members(found.spec)["filesystem"] & {"write_file", "read_text_file", "edit_file"} == tools


@pytest.mark.parametrize("goal", ["", "Help me!", "Build a team"])
async def test_goal_without_content_is_asked_about(goal: str) -> None:
    found, run = await designed(goal, *DEMO)

    assert (found.spec, found.attempt) == (None, 0)
    assert len(run.questions) == 1


@pytest.mark.parametrize(
    "goal",
    [
        "Ein Team, das den Speicher dieses Rechners überwacht",
        "Sag mir bitte immer die Uhrzeit in Lima",
        "一个监视这台机器的磁盘和内存的团队",
        "Une équipe qui donne l'heure à Lima",
    ],
)
async def test_goal_in_another_language_is_answered_with_what_the_rules_read(goal: str) -> None:
    found, run = await designed(goal, *DEMO, reply="Tell the current time in a time zone")

    (question, _) = run.questions[0]
    assert "English" in question
    assert "STARLING_MODEL" in question
    assert found.spec
    assert set(members(found.spec)) == {"time"}


@pytest.mark.parametrize("part", ["order a pizza", "summarise them", "write the time into a report file"])
async def test_part_that_no_server_serves_is_reported(part: str) -> None:
    found, _ = await designed(f"Tell the current time in a time zone and {part}", *DEMO)

    assert found.spec is None
    assert [one.part for one in found.missing] == [part]


@pytest.mark.parametrize(
    ("goal", "server"),
    [
        pytest.param("the time in Lima", "system_health", id="a place that no tool takes"),
        pytest.param("Tell me what time it is in Tokyo", "system_health", id="a word beside the subject of a tool"),
        pytest.param("lists the last commits of /srv/app", "system_health", id="a path that no tool takes"),
        pytest.param("A team that watches the disk and the memory", "memory", id="a word of the server's name alone"),
        pytest.param("read /srv/docs/a.txt", "memory", id="a path that another tool takes"),
        pytest.param("tells the price of a share", "system_health", id="a word of a result"),
    ],
)
async def test_goal_that_only_a_wrong_server_is_there_for_is_a_gap(goal: str, server: str) -> None:
    found, _ = await designed(goal, server)

    assert found.spec is None
    assert len(found.missing) == 1


async def test_changed_team_keeps_its_members_and_gets_those_of_the_goal() -> None:
    first, _ = await designed("I want a team for time zones", *DEMO)

    found, _ = await designed("Also show the load of the machine", *DEMO, base=first.spec)

    assert first.spec
    assert is_sound(found)
    assert found.spec
    assert found.spec.name == first.spec.name
    assert set(members(found.spec)) == {"time", "system_health"}


@pytest.mark.parametrize(
    "goal", ["A team that never deletes a file, only shows the load", "It shall no longer watch the disk"]
)
async def test_part_that_says_what_not_to_do_is_reported_and_served_by_nothing(goal: str) -> None:
    found, _ = await designed(goal, *DEMO)

    assert found.spec is None
    assert any(word in found.missing[0].part for word in ("never", "no longer"))


@pytest.mark.parametrize(
    ("goal", "most", "sources", "missing"),
    [
        pytest.param(
            "Show the load, tell the current time in Lima and show the memory",
            1,
            ["system_health"],
            ["tell the current time in Lima"],
            id="server-of-most-parts",
        ),
        pytest.param("Show the load and tell the time in Lima", 2, ["system_health", "time"], [], id="enough"),
    ],
)
async def test_team_has_no_more_members_than_are_allowed(
    goal: str, most: int, sources: list[str], missing: list[str]
) -> None:
    constraints = BuildConstraints(members=most)

    found, _ = await designed(goal, *DEMO, constraints=constraints, partial=True)

    assert is_sound(found)
    assert found.spec
    assert [member.server for member in found.spec.members] == sources
    assert [one.part for one in found.missing] == missing


async def test_purpose_of_a_changed_team_has_what_was_added() -> None:
    first, _ = await designed("Show the load", *DEMO)
    changed, _ = await designed("Also tell the time in Lima", *DEMO, base=first.spec)

    assert changed.spec
    assert changed.spec.purpose == "Show the load; Also tell the time in Lima"
