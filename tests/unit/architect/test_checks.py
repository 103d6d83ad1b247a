"""Each rule that a team spec has to keep: what breaks it, and what doesn't."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from architect.checks import DESIGN_RULES, checked
from architect.team_world import TeamWorld
from starling.core.principal import Grant
from starling.core.teams.spec import TeamSpec
from tests.support.team_specs import SERVERS, WORLD, grant, member, star, team_spec

HISTORIAN = member(server="git")


def found(team: TeamSpec, world: TeamWorld = WORLD) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in checked(team, world)]


def case(**fields: Any) -> dict[str, Any]:
    """Return an example."""
    return {"id": "one", "input": "What is new?", **fields}


def criterion(**fields: Any) -> dict[str, Any]:
    return {"id": "dated", "text": "It has dates.", "kind": "judged", **fields}


@pytest.mark.parametrize(
    ("team", "broken"),
    [
        pytest.param(team_spec(HISTORIAN, name="supervisor"), [("reserved_name", "name")], id="team-supervisor"),
        pytest.param(team_spec(HISTORIAN, name="coder"), [("reserved_name", "name")], id="team-builtin"),
        pytest.param(
            team_spec(HISTORIAN, name="mcp-agent-git"), [("reserved_name", "name")], id="team-like-a-specialist"
        ),
        pytest.param(
            team_spec(member("mcp_agent_git")), [("reserved_name", "members[0].name")], id="member-like-a-specialist"
        ),
        pytest.param(
            team_spec(HISTORIAN, member("qa")), [("reserved_name", "members[1].name")], id="member-like-a-node"
        ),
        pytest.param(
            team_spec(member(team="architect")), [("reserved_name", "members[0].team")], id="member-that-builds-teams"
        ),
        pytest.param(team_spec(member(team="coder")), [("unknown_team", "members[0].team")], id="member-for-a-builtin"),
        pytest.param(team_spec(HISTORIAN, name="release_notes"), [("taken_name", "name")], id="name-of-an-agent"),
        pytest.param(team_spec(HISTORIAN, name="release-notes"), [("taken_name", "name")], id="like-that-of-an-agent"),
        pytest.param(team_spec(HISTORIAN, name="git-team"), [("taken_name", "name")], id="like-that-of-a-team"),
        pytest.param(team_spec(HISTORIAN, name="super_visor"), [("taken_name", "name")], id="like-that-of-a-node"),
        pytest.param(
            team_spec(HISTORIAN, HISTORIAN), [("duplicate_member", "members[1].name")], id="two-members-of-a-name"
        ),
        pytest.param(
            team_spec(member("his_torian"), HISTORIAN),
            [("duplicate_member", "members[1].name")],
            id="two-members-of-alike-names",
        ),
        pytest.param(
            team_spec(HISTORIAN, member("writer"), limits={"members": 1}),
            [("too_many_members", "members")],
            id="more-members-than-the-limit",
        ),
        pytest.param(
            team_spec(member(server="git", team="git_team")),
            [("member_source", "members[0].team")],
            id="server-and-team",
        ),
        pytest.param(
            team_spec(member(team="git_team", tools=["git.git_log"])),
            [("member_source", "members[0].tools")],
            id="team-with-tools",
        ),
        pytest.param(
            team_spec(member(tools=["git.git_log"])), [("member_source", "members[0].server")], id="tools-alone"
        ),
        pytest.param(
            team_spec(member(server="git", tools=["git.git_log", "files.read_file"])),
            [("member_source", "members[0].tools[1]")],
            id="tool-of-another-server",
        ),
        pytest.param(
            team_spec(member(tools=["git.git_log", "files.read_file"])),
            [("member_source", "members[0].server"), ("member_source", "members[0].tools[1]")],
            id="tools-of-two-servers",
        ),
        pytest.param(team_spec(member(server="gti")), [("unknown_server", "members[0].server")], id="unknown-server"),
        pytest.param(
            team_spec(
                member(server="gone"),
                criteria=[criterion(kind="tool_called", value="gone.tool")],
                examples=[case(must_call=["gone.tool"])],
            ),
            [("unknown_server", "members[0].server")],
            id="unknown-server-with-criteria-and-examples",
        ),
        pytest.param(
            team_spec(HISTORIAN, grants={"servers": ["git", "gone"]}),
            [("unknown_server", "grants.servers[1]")],
            id="unknown-server-granted",
        ),
        pytest.param(
            team_spec(member(server="git", tools=["git.git_log", "git.push"])),
            [("unknown_tool", "members[0].tools[1]")],
            id="unknown-tool",
        ),
        pytest.param(
            team_spec(HISTORIAN, grants={"servers": ["git"], "tools": ["files.delete"]}),
            [("unknown_tool", "grants.tools[0]")],
            id="unknown-tool-granted",
        ),
        pytest.param(team_spec(member(team="absent")), [("unknown_team", "members[0].team")], id="unknown-team"),
        pytest.param(
            team_spec(
                member(team="absent"),
                criteria=[criterion(kind="tool_called", value="git.git_log")],
                examples=[case(must_call=["git.git_log"])],
            ),
            [("unknown_team", "members[0].team")],
            id="unknown-team-with-criteria-and-examples",
        ),
        pytest.param(team_spec(member(team="news")), [("cycle", "members[0].team")], id="team-of-itself"),
        pytest.param(
            team_spec(member(team="pair"), name="git_team"), [("cycle", "members[0].team")], id="team-around-itself"
        ),
        pytest.param(
            team_spec(HISTORIAN, member("deep", team="triple")), [("depth", "members[1].team")], id="four-levels"
        ),
        pytest.param(
            team_spec(member(server="git", tools=["git.git_log"]), grants={"servers": ["files"]}),
            [("spec_grants", "members[0].tools[0]"), ("member_without_tools", "members[0].server")],
            id="tool-that-grants-leave-out",
        ),
        pytest.param(
            team_spec(HISTORIAN, grants={"servers": ["files"]}),
            [("member_without_tools", "members[0].server")],
            id="server-that-grants-leave-out",
        ),
        pytest.param(
            team_spec(member(team="pair"), grants={"servers": ["files"]}),
            [("member_without_tools", "members[0].team")],
            id="team-that-grants-leave-out",
        ),
        pytest.param(
            team_spec(member(server="silent")), [("member_without_tools", "members[0].server")], id="server-of-no-tools"
        ),
        pytest.param(
            team_spec(HISTORIAN, criteria=[criterion(), criterion()]), [("criteria", "criteria[1].id")], id="id-twice"
        ),
        pytest.param(
            team_spec(HISTORIAN, criteria=[criterion(kind="text_contains")]),
            [("criteria", "criteria[0].value")],
            id="criterion-without-value",
        ),
        pytest.param(
            team_spec(HISTORIAN, criteria=[criterion(value="2026")]),
            [("criteria", "criteria[0].value")],
            id="judged-with-value",
        ),
        pytest.param(
            team_spec(HISTORIAN, criteria=[criterion(kind="tool_called", value="files.read_file")]),
            [("criteria", "criteria[0].value")],
            id="criterion-of-another-tool",
        ),
        pytest.param(
            team_spec(HISTORIAN, examples=[case(), case()]), [("examples", "examples[1].id")], id="example-id-twice"
        ),
        pytest.param(
            team_spec(HISTORIAN, criteria=[criterion()], examples=[case(criteria=["dated", "short", "dated"])]),
            [("examples", "examples[0].criteria[1]"), ("examples", "examples[0].criteria[2]")],
            id="criteria-of-an-example",
        ),
        pytest.param(
            team_spec(
                HISTORIAN,
                examples=[
                    case(
                        fixtures=[{"tool": "files.read_file", "result": ""}],
                        must_call=["git.push"],
                        must_not_call=["time.get_current_time"],
                    )
                ],
            ),
            [
                ("examples", "examples[0].fixtures[0].tool"),
                ("examples", "examples[0].must_call[0]"),
                ("examples", "examples[0].must_not_call[0]"),
            ],
            id="tools-of-an-example",
        ),
        pytest.param(
            team_spec(HISTORIAN, examples=[case(must_call=["git.git_log"], must_not_call=["git.git_log"])]),
            [("examples", "examples[0].must_not_call[0]")],
            id="must-and-must-not",
        ),
    ],
)
def test_spec_that_breaks_a_rule_is_found_at_its_place(team: TeamSpec, broken: list[tuple[str, str]]) -> None:
    assert found(team) == broken


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        pytest.param(
            "pair_of_old",
            "The team 'pair_of_old' is archived. `starling team activate pair_of_old` takes it up again; or let the "
            "member use another one.",
            id="archived",
        ),
        pytest.param(
            "pairing",
            "The team 'pairing' is not active: its newest version is proven. "
            "`starling team activate pairing` activates it.",
            id="never-activated",
        ),
        pytest.param("pairs", "You have no active team 'pairs'. Did you mean 'pair' or 'payers'?", id="misspelt"),
    ],
)
def test_inner_team_that_can_not_be_used_is_named_with_its_state_and_the_remedy(inner: str, says: str) -> None:
    world = replace(WORLD, inactive={"pair_of_old": "archived", "pairing": "proven"})

    (finding,) = checked(team_spec(member(team=inner)), world)

    assert (finding.rule, str(finding)) == ("unknown_team", f"members[0].team: {says}")


@pytest.mark.parametrize(
    "team",
    [
        pytest.param(team_spec(member("writer")), id="writer-alone"),
        pytest.param(team_spec(HISTORIAN, member("clock", server="time"), member("writer")), id="two-servers"),
        pytest.param(team_spec(member(server="git"), member("second", server="git")), id="two-members-of-a-server"),
        pytest.param(team_spec(member("coder", server="files")), id="member-named-like-a-builtin"),
        pytest.param(team_spec(HISTORIAN, name="git_team"), id="new-version-of-a-team"),
        pytest.param(team_spec(member(team="pair"), HISTORIAN | {"name": "other"}), id="three-levels"),
        pytest.param(team_spec(HISTORIAN, limits={"members": 1}), id="as-many-members-as-the-limit"),
        pytest.param(team_spec(member(server="git"), grants={"tools": ["git.git_log"]}), id="part-of-a-server-granted"),
        pytest.param(
            team_spec(member(team="git_team"), grants={"tools": ["git.git_log"]}), id="part-of-a-team-granted"
        ),
        pytest.param(
            team_spec(
                HISTORIAN,
                criteria=[
                    criterion(),
                    criterion(id="called", kind="tool_called", value="git.git_log"),
                    criterion(id="kept", kind="artifact", value="report.md"),
                ],
                examples=[
                    case(
                        criteria=["dated", "called"],
                        fixtures=[{"tool": "git.git_commit", "result": {"ok": True}}],
                        must_call=["git.git_log"],
                        must_not_call=["git.git_commit"],
                    )
                ],
            ),
            id="criteria-and-examples",
        ),
        pytest.param(
            team_spec(member(team="git_team"), examples=[case(must_call=["git.git_log"])]), id="tool-of-an-inner-team"
        ),
    ],
)
def test_spec_that_keeps_all_rules_has_no_finding(team: TeamSpec) -> None:
    assert found(team) == []


def test_team_with_tools_that_are_gone_is_broken_where_it_is_used() -> None:
    world = replace(WORLD, servers={**SERVERS, "git": {"git_log": SERVERS["git"]["git_log"]}})

    (finding,) = checked(team_spec(member(team="pair")), world)

    assert (finding.rule, finding.path) == ("broken_team", "members[0].team")
    assert "git.git_commit" in finding.reason


def test_cycle_through_teams_that_were_compiled_before_is_found() -> None:
    inner = star("inner", HISTORIAN)
    outer = star("outer", member(team="inner"), inner=inner)

    rules = found(team_spec(member(team="outer"), name="inner"), TeamWorld(SERVERS, {"inner": inner, "outer": outer}))

    assert rules == [("cycle", "members[0].team")]


@pytest.mark.parametrize(
    ("team", "caller", "broken"),
    [
        pytest.param(team_spec(HISTORIAN), grant("git"), [], id="server-granted"),
        pytest.param(team_spec(HISTORIAN), grant("git.git_log"), [], id="part-of-a-server-granted"),
        pytest.param(team_spec(member("writer")), grant(), [], id="writer-without-a-grant"),
        pytest.param(
            team_spec(member(server="payroll")), grant("git"), [("caller_grant", "members[0].server")], id="server"
        ),
        pytest.param(
            team_spec(member(server="absent")), grant("git"), [("caller_grant", "members[0].server")], id="no-server"
        ),
        pytest.param(
            team_spec(member(server="git", tools=["git.git_log", "git.git_commit"])),
            grant("git.git_log"),
            [("caller_grant", "members[0].tools[1]")],
            id="tool",
        ),
        pytest.param(
            team_spec(member(server="git", tools=["git.git_log", "git.absent"])),
            grant("git.git_log"),
            [("caller_grant", "members[0].tools[1]")],
            id="no-tool",
        ),
        pytest.param(
            team_spec(HISTORIAN, grants={"servers": ["git", "payroll"], "tools": ["absent.tool"]}),
            grant("git"),
            [("caller_grant", "grants.servers[1]"), ("caller_grant", "grants.tools[0]")],
            id="grants-of-the-spec",
        ),
        pytest.param(
            team_spec(member(team="payers")), grant("git"), [("member_without_tools", "members[0].team")], id="team"
        ),
        pytest.param(
            team_spec(member(server="git")),
            grant("git.absent"),
            [("member_without_tools", "members[0].server")],
            id="no-tool-left",
        ),
    ],
)
def test_spec_names_only_what_its_caller_may_call(team: TeamSpec, caller: Grant, broken: list[tuple[str, str]]) -> None:
    assert found(team, replace(WORLD, grant=caller)) == broken


@pytest.mark.parametrize("secret", ["payroll", "absent"])
def test_caller_can_not_tell_a_server_that_it_is_not_granted_from_one_that_does_not_exist(secret: str) -> None:
    team = team_spec(member(server=secret), grants={"servers": [secret], "tools": [f"{secret}.pay"]})

    texts = [str(finding).replace(secret, "…") for finding in checked(team, replace(WORLD, grant=grant("git")))]

    assert texts == [
        str(finding).replace("other", "…")
        for finding in checked(
            team_spec(member(server="other"), grants={"servers": ["other"], "tools": ["other.pay"]}),
            replace(WORLD, grant=grant("git")),
        )
    ]


def named(tool: str) -> dict[str, TeamSpec]:
    """Return specs that name a tool, by its place in them."""
    historian = member(server="git")
    return {
        "criterion": team_spec(historian, criteria=[criterion(kind="tool_called", value=tool)]),
        "fixture": team_spec(historian, examples=[case(fixtures=[{"tool": tool, "result": ""}])]),
        "must_call": team_spec(historian, examples=[case(must_call=[tool])]),
        "must_not_call": team_spec(historian, examples=[case(must_not_call=[tool])]),
        "grants": team_spec(historian, grants={"tools": [tool]}),
        "member": team_spec(member(server="git", tools=[tool])),
        "member-beside-an-unknown-one": team_spec(member(server="git", tools=["git.seen", tool])),
        "inner-team": team_spec(member(team="git_team"), examples=[case(must_call=[tool])]),
    }


@pytest.mark.parametrize("place", list(named("git.git_commit")))
def test_caller_can_not_tell_a_tool_that_it_is_not_granted_from_one_that_does_not_exist(place: str) -> None:
    world = replace(WORLD, grant=grant("git.git_log", "git.seen"))

    texts = [
        [str(finding).replace(tool, "…") for finding in checked(named(tool)[place], world)]
        for tool in ("git.git_commit", "git.absent")
    ]

    assert texts[0] == texts[1]
    assert any("This key may not call '…'" in text for text in texts[0])


@pytest.mark.parametrize(
    ("team", "caller", "remedy"),
    [
        pytest.param(team_spec(member(server="gitt")), None, "Did you mean 'git'?", id="server"),
        pytest.param(team_spec(member(server="payrol")), None, "Did you mean 'payroll'?", id="server-seen"),
        pytest.param(
            team_spec(member(server="git", tools=["git.log"])), None, "Did you mean 'git.git_log'?", id="tool"
        ),
        pytest.param(team_spec(member(team="git_teams")), None, "Did you mean 'git_team'?", id="team"),
        pytest.param(
            team_spec(HISTORIAN, criteria=[criterion()], examples=[case(criteria=["date"])]),
            None,
            "Did you mean 'dated'?",
            id="criterion",
        ),
        pytest.param(
            team_spec(member(server="git", tools=["git.git_commits"])),
            grant("git.git_log", "git.git_commits"),
            "Did you mean 'git.git_log'?",
            id="tool-as-far-as-granted",
        ),
    ],
)
def test_unknown_name_is_answered_with_near_ones(team: TeamSpec, caller: Grant | None, remedy: str) -> None:
    finding = checked(team, replace(WORLD, grant=caller))[0]

    assert finding.remedy == remedy


def test_spec_with_many_faults_has_the_first_fifty_findings() -> None:
    examples = [case(id=f"c{number}", must_call=["a.b"] * 50) for number in range(50)]

    findings = checked(team_spec(member("qa"), examples=examples), WORLD)

    assert len(findings) == 50
    assert findings[0].rule == "reserved_name"


def test_guide_explains_every_rule() -> None:
    guide = (Path(__file__).parents[3] / "docs/reference/teams.md").read_text("utf-8")
    rows = [line for line in guide.splitlines() if line.startswith("| `")]

    names = {rule.__module__.rpartition(".")[2] for rule in DESIGN_RULES}

    assert {name for name in names if not any(f"`{name}`" in row.split("|")[1] for row in rows)} == set()
